"""Types and pure rules of node images, as data that crosses from the compiler to the builder and to the booted node."""
