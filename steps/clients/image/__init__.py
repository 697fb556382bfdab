"""Builds, packs, tests and reads node images: the only users of mount namespaces, package managers and squashfs in a step."""
