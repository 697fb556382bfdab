"""Linter for a subset of Argo Workflows: a manifest that it accepts runs in the same way on Argo and on the local engine."""

from workflows.render.grammar.findings import LintFinding, refused
from workflows.render.grammar.lint import lint

__all__ = ["LintFinding", "lint", "refused"]
