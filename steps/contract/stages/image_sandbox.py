"""Stage image_sandbox: results of the tests on the root, and which must be there."""

from msgspec import Struct

from steps.contract.image.testing import Result


class Sandboxed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was run on the root of which image. `problem`: why no sandbox could be had."""

    key: str
    results: tuple[Result, ...] = ()
    seconds: float = 0.0
    problem: str = ""


class Case(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A test that must have passed, with what to say where it did not."""

    name: str
    incident: str = ""
    next_step: str = ""


class Wanted(Struct, frozen=True, kw_only=True):
    """The image's key and all its tests."""

    key: str
    tests: tuple[Case, ...]
