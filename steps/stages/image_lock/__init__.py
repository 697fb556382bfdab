"""Stage image_lock of a node image: the locked packages are in the archive."""
