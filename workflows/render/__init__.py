"""Rendering of a plan into manifests, and the checks of those manifests (compile side)."""
