"""Builds, packs, tests and reads node images: the only users of mount namespaces, dpkg, apt and squashfs in a step."""
