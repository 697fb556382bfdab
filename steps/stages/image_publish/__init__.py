"""Stage image_publish of a node image: the image is published."""
