"""Stage image_publish of a node image: copies the tested image to where nodes read it, and switches the pointer to it."""
