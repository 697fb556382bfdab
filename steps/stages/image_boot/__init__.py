"""Stage image_boot of a node image: virtual test machines boot the image over the network and run its tests."""
