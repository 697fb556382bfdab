"""Stage image_assemble of a node image: packs root, kernel and initrd into the files that machines boot."""
