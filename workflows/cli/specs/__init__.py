"""Commands about a spec before anything runs, and what they call."""
