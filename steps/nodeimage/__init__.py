"""Node images: what runs after submit to build, test and publish them."""
