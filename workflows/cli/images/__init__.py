"""Commands about node images and their recipes, and what they call."""
