"""Checks of names on a command line that become parts of URLs and paths, before anything is read or requested."""

import re

_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_RUN = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_SPACE = re.compile(_LABEL)


class NotAName(ValueError):
    """Error for a text on the command line that cannot be the name of a run, cluster or namespace."""

    hint = "runs, clusters and namespaces have the names that Kubernetes allows, as in h200-16-20261121-101500-3f2a"


def is_namespace(text: str) -> bool:
    """Return True if Kubernetes accepts the text as the name of a namespace."""
    return bool(_SPACE.fullmatch(text))


def require_namespace(text: str) -> None:
    """Raise NotAName if a text cannot be a namespace. An empty text, which stands for the default, is accepted."""
    if text and not is_namespace(text):
        raise NotAName(f"{text!r} cannot be a namespace: lower-case letters, digits and dashes, at most 63")


def require(text: str, what: str = "run") -> None:
    """Raise NotAName if a text cannot be the name of a Workflow. `what` describes it in the message; an empty text is accepted."""
    if text and not _RUN.fullmatch(text):
        raise NotAName(f"{text!r} cannot be the name of a {what}: lower-case letters, digits, dashes and dots")
