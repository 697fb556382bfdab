"""Test boots of a node image: QEMU machines boot it by PXE from a local HTTP server."""
