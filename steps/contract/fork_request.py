"""The request that an engine sends to a fork server (`steps.fork_server`)."""

from msgspec import Struct

LARGEST = 100_000
"""Limit of a request in bytes; an engine starts a step with longer arguments itself."""


class ForkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to a fork server to start one step: the arguments of `python -m steps`, its environment and its working folder.

    The file descriptors for the step's stdout and stderr travel beside the request.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
