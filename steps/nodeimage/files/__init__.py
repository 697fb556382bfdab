"""The files of a node image (squashfs, kernel, initrd, OCI archive): packed, read back and compared."""
