"""Known error messages of tools, named and classified, so that a gate can tell why something failed."""

from msgspec import Struct

from steps.contract.verdict import FailureClass


class ToolError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error: its cause, its class, and the line that reports it. `host` and `device` are empty if the text does not
    name them.
    """

    cause: str
    failure_class: FailureClass
    line: str
    host: str = ""
    device: str = ""
