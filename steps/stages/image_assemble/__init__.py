"""Stage image_assemble of a node image: the files of the image are packed."""
