"""Makes and reads an image's files: squashfs, kernel, initrd, OCI archive and manifest."""
