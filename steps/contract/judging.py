"""What the judge of a stage compares: the verdicts its tasks left, against the tasks that must have left one."""

from msgspec import Struct

from steps.contract.verdict import Verdict


class Check(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task whose records count, in running order. `shards` is how many records it must have left."""

    task: str
    gate: str
    shards: int = 1
    optional: bool = False


class Result(Struct, frozen=True, kw_only=True):
    """The verdicts that the records of one task hold, one for each shard that left a record."""

    task: str
    verdicts: tuple[Verdict, ...]


class Observation(Struct, frozen=True, kw_only=True):
    """All records of a stage, and the nodes that earlier stages set aside (name → reason)."""

    results: tuple[Result, ...]
    aside: dict[str, str] = {}


class Expectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`members` are the nodes of which `needed` must pass every gate that judges nodes; `required` must pass one and all."""

    gate: str
    checks: tuple[Check, ...]
    members: tuple[str, ...]
    needed: int
    required: tuple[str, ...] = ()
