"""One layer of a node image: built from locked packages, cached by its key, and verified."""
