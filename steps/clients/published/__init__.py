"""Published trees of node images: written so that no node ever reads half of a version, read back, rolled back, and checked."""
