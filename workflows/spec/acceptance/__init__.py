"""Levels of an acceptance, and the tests that a configuration rules out."""
