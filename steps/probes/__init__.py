"""Probes read the world into observations; they do not judge."""
