"""Use cases about node images and their recipes."""
