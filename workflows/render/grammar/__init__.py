"""Linter for the portable subset of Argo Workflows: what it accepts, Argo and the local engine execute in the same way."""

from workflows.render.grammar.findings import LintFinding, refused
from workflows.render.grammar.lint import lint

__all__ = ["LintFinding", "lint", "refused"]
