"""What a node image is, as data that crosses from the compiler to the builder and to the booted node."""
