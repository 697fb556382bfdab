"""Stage image_boot of a node image: test machines boot the image."""
