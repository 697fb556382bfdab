"""Builds images from recipes and locks: without a daemon, a registry, or rights beyond those of a user."""
