"""The safe-inspection and recovery checklist of each failure class."""

import functools

from msgspec import Struct, convert

from steps.contract.evidence import Diagnosis
from steps.contract.verdict import FailureClass

FILE = "checklists.yaml"
LINK = "checklist"
"""How an entry of a diagnosis is called that names a checklist; a report shows the checklist itself instead."""


class Checklist(Struct, frozen=True):
    """`inspect` changes nothing; `recover` is what usually helps, in order."""

    inspect: tuple[str, ...]
    recover: tuple[str, ...]


@functools.cache
def every() -> dict[FailureClass, Checklist]:
    """All checklists by class."""
    from importlib import resources  # only who shows a checklist reads it

    import yaml

    text = resources.files("steps.report").joinpath(FILE).read_text()
    loaded = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return convert(loaded, dict[FailureClass, Checklist])


def link(kind: FailureClass) -> Diagnosis:
    """Where the checklist of a class is, for a record."""
    return Diagnosis(what=LINK, source=f"class {kind.value}", content=f"steps/report/{FILE}#{kind.value}")
