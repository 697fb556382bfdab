"""The grammar layer: what a manifest may use so that Argo and the embedded engine do the same with it."""

from workflows.render.grammar.findings import Finding, refused
from workflows.render.grammar.lint import lint

__all__ = ["Finding", "lint", "refused"]
