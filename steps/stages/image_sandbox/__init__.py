"""Stage image_sandbox of a node image: runs the image's tests in its root file system, without a boot."""
