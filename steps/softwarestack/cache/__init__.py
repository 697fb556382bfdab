"""Build cache: entries by package hash, archives of packages, and packages unpacked from it."""
