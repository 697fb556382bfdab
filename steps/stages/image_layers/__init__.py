"""Stage image_layers of a node image: builds each layer of the image's root file system, or finds it in the cache."""
