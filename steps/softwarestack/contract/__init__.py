"""Types and pure rules of software stacks, as data that crosses from the compiler to the builder and from the builder to gates."""
