"""One layer of an image: built, cached and checked."""
