"""Test boots of node images: real firmware under QEMU, DHCP and TFTP of its network, and an HTTP server of ours."""
