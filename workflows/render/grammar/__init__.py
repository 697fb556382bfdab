"""Linter for a subset of Argo Workflows: a manifest that it accepts runs in the same way on Argo and on the local engine.

Nothing is imported here: commands that only read a run need the expressions of the subset, and not the linter with its schema.
"""
