"""The files of an image: packed, read back and compared."""
