"""Types of a stage's judgement: the tasks that must have left verdicts, and the verdicts that they left."""

from msgspec import Struct

from steps.contract.verdict import Verdict

FLEET = {"os_prep/nodes": "os_prep/fleet"}
"""Gate of a task that runs once for each shard → gate that compares the hosts of all shards.

Each shard saw its own hosts alone. The observations are objects of lists, which are joined; the expectations are those of the
sharded task.
"""


class JudgedTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task of a stage whose records the judge requires. A stage lists them in running order.

    `select` says which hosts the check is about (`all`, `gpu`, `server`, `agent`); empty means the required nodes and the members.
    `fanned`: each shard left its own record. `per_node`: its gate must judge nodes by name. `optional`: the task may leave no
    record. `needed`: how many of the hosts of `select` must have passed up to this check, besides the stage's own quorum.
    `records`: so many different shards must have left a record, each of them a pass; 0 if one record is enough.
    """

    task: str
    gate: str
    select: str = ""
    needed: int = 0
    fanned: bool = False
    per_node: bool = False
    optional: bool = False
    records: int = 0


class TaskVerdicts(Struct, frozen=True, kw_only=True):
    """Verdicts in the records of one task, one for each shard that left a record."""

    task: str
    verdicts: tuple[Verdict, ...]


class StageObservation(Struct, frozen=True, kw_only=True):
    """Verdicts of a stage's tasks, and the nodes that earlier stages quarantined (name → stage)."""

    results: tuple[TaskVerdicts, ...]
    aside: dict[str, str] = {}


class StageExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rules by which a stage is judged.

    `members` are the nodes of which `needed` must pass every gate that judges nodes; all `required` nodes must pass. `about` maps
    each `select` of the checks to host names. `kind` is the word for the members in messages.
    """

    gate: str
    checks: tuple[JudgedTask, ...]
    members: tuple[str, ...]
    needed: int
    required: tuple[str, ...] = ()
    about: dict[str, tuple[str, ...]] = {}
    kind: str = "nodes"
