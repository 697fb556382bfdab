"""Types and pure rules of a node image, as data that crosses from the compiler to the builder and to the booted node."""
