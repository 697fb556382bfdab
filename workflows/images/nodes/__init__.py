"""Recipes of node images, resolved: recipe files + variables + lock → what the builder is told."""
