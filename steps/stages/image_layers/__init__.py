"""Stage image_layers of a node image: the layers are built."""
