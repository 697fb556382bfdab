"""Use cases about runs on either engine."""
