"""Stage image_lock of a node image: every package that the recipe locks is in the store's package archive."""
