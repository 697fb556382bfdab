"""Section of a run's report about a Slurm cluster: none of its own, because the gates' verdicts and measurements say everything."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from steps.contract.runs.evidence import Evidence

SECTION: Final = "slurm"
"""Field of a run's report; it is never set."""


def details(_: Sequence[Evidence]) -> Struct | None:
    """Return None: the report's own tables show an acceptance."""
    return None


def nothing_to_do(_: Iterable[Evidence]) -> str:
    """Return an empty text: an acceptance measures anew each time."""
    return ""


def untested(_: Iterable[Evidence]) -> tuple[tuple[str, str, str], ...]:
    """Return nothing: each test that does not run fails its gate."""
    return ()


def template() -> str:
    """Return an empty template."""
    return ""
