"""The request that an engine sends to a fork server (`steps.fork_server`)."""

from msgspec import Struct

LARGEST = 100_000
"""Limit of a request in bytes; an engine starts a step with longer arguments itself."""


class ForkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to fork one step: the arguments of `python -m steps`, its environment and its working folder.

    The descriptors of its stdout and its stderr travel beside the request.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
