"""Errors that tools state in their own words, named and classed, so that a gate can tell why something failed."""

from msgspec import Struct

from steps.contract.verdict import FailureClass


class ToolError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One error: what it means, its class, and the line that says it. `host` and `device` are where, as far as the text tells."""

    cause: str
    failure_class: FailureClass
    line: str
    host: str = ""
    device: str = ""
