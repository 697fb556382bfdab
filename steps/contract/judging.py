"""What the judge of a stage compares: the verdicts its tasks left, against the tasks that must have left one."""

from msgspec import Struct

from steps.contract.verdict import Verdict

FLEET = {"os_prep/nodes": "os_prep/fleet"}
"""Gate of a fanned task → the gate that compares what all of its shards observed: each of them saw its own hosts alone. The
observations of the shards are objects of lists, which are joined; the expectations are those of the fanned task."""


class Check(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task whose records count, in running order. `select` says whose check it is (`all`, `gpu`, `server`, `agent`); empty:
    the required nodes and the members. `fanned`: each shard left its own record. `per_node`: its gate must judge nodes by name.
    `optional`: the task may leave no record."""

    task: str
    gate: str
    select: str = ""
    fanned: bool = False
    per_node: bool = False
    optional: bool = False


class Result(Struct, frozen=True, kw_only=True):
    """The verdicts that the records of one task hold, one for each shard that left a record."""

    task: str
    verdicts: tuple[Verdict, ...]


class Observation(Struct, frozen=True, kw_only=True):
    """All records of a stage, and the nodes that earlier stages set aside (name → stage)."""

    results: tuple[Result, ...]
    aside: dict[str, str] = {}


class Expectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`members` are the nodes of which `needed` must pass every gate that judges nodes; `required` must pass one and all.
    `about` holds the names behind every `select` of the checks; `kind` is what the members are, for people."""

    gate: str
    checks: tuple[Check, ...]
    members: tuple[str, ...]
    needed: int
    required: tuple[str, ...] = ()
    about: dict[str, tuple[str, ...]] = {}
    kind: str = "nodes"
