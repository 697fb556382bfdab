"""PXE boots of an image in QEMU machines."""
