"""Stage image_status of a node image: it finds out if the image is published already, so that nothing need be built."""
