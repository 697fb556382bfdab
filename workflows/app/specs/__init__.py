"""Use cases about specs before anything runs."""
