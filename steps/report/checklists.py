"""Checklists for each failure class: what to inspect safely, and how to recover."""

import functools

from msgspec import Struct, convert

from steps.contract.runs.evidence import Diagnosis
from steps.contract.verdict import FailureClass

FILE = "checklists.yaml"
LINK = "checklist"
"""Name of a diagnosis entry that refers to a checklist; reports show the checklist itself in its place."""


class Checklist(Struct, frozen=True):
    """A checklist for one failure class. Steps of `inspect` change nothing; `recover` is what usually helps, in order."""

    inspect: tuple[str, ...]
    recover: tuple[str, ...]


@functools.cache
def every() -> dict[FailureClass, Checklist]:
    """Return all checklists by failure class."""
    from importlib import resources  # imported here: most steps show no checklist

    import yaml

    text = resources.files("steps.report").joinpath(FILE).read_text()
    loaded = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return convert(loaded, dict[FailureClass, Checklist])


def link(kind: FailureClass) -> Diagnosis:
    """Return the diagnosis entry that stands for the checklist of a failure class in a record."""
    return Diagnosis(what=LINK, source=f"class {kind.value}", content=f"steps/report/{FILE}#{kind.value}")
