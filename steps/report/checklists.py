"""The safe-inspection and recovery checklist of each failure class."""

import functools
from importlib import resources

import yaml
from msgspec import Struct, convert

from steps.contract.verdict import FailureClass


class Checklist(Struct, frozen=True):
    """`inspect` changes nothing; `recover` is what usually helps, in order."""

    inspect: tuple[str, ...]
    recover: tuple[str, ...]


@functools.cache
def every() -> dict[FailureClass, Checklist]:
    """All checklists by class."""
    text = resources.files("steps.report").joinpath("checklists.yaml").read_text()
    return convert(yaml.safe_load(text), dict[FailureClass, Checklist])
