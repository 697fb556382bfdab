"""Folders of the image store that appear whole, and the external programs that fill them."""
