"""Stage image_standing of a node image: is the image published already."""
