"""Stage image_sandbox of a node image: the tests pass without a boot."""
