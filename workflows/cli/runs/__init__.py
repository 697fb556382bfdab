"""Commands about runs on either engine, and what they call."""
