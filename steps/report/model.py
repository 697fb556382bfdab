"""The report as data: one run's stages, nodes, approvals and diagnoses, all taken from its evidence."""

from msgspec import Struct

from steps.contract.evidence import Diagnosis
from steps.contract.quarantine import Entry

NOT_RUN = "not run"
"""Status of a planned stage or gate without a record."""


class Gate(Struct, frozen=True, kw_only=True):
    """One gate of a stage: its last verdict. `passed` and `expected` count nodes; 0 where it judges none."""

    gate: str
    status: str
    reason: str = ""
    passed: int = 0
    expected: int = 0


class Attempt(Struct, frozen=True, kw_only=True):
    """One stored record. Times are UTC seconds since the epoch."""

    key: str
    sha256: str
    stage: str
    task: str
    verb: str
    shard: int
    attempt: int
    started: float
    finished: float
    status: str
    reason: str = ""
    reused: str = ""
    error: str = ""
    changes: tuple[str, ...] = ()


class Stage(Struct, frozen=True, kw_only=True):
    """One planned stage. `failure_class` and `next_step` are set where it did not pass."""

    id: str
    title: str
    status: str
    reason: str
    gates: tuple[Gate, ...]
    started: float = 0.0
    finished: float = 0.0
    failure_class: str = ""
    next_step: str = ""
    rollback: str = ""
    changes: int = 0


class Node(Struct, frozen=True, kw_only=True):
    """One expected host: status by gate id (gates that do not judge nodes are left out), and why it did not pass.

    `reason` is the first in running order, `reasons` has one for each gate that it did not pass. `places` are names of where it
    stands beside the rack: leaf switch, scalable unit.
    """

    name: str
    group: str
    rack: str
    gates: dict[str, str]
    reason: str = ""
    reasons: dict[str, str] = {}
    places: tuple[str, ...] = ()
    aside: bool = False


class Approval(Struct, frozen=True, kw_only=True):
    """One answer to an approval before a stage."""

    stage: str
    decision: str
    approver: str
    evidence: str
    status: str
    reason: str
    time: float
    signed: bool = False


class Trouble(Struct, frozen=True, kw_only=True):
    """What was collected about a verdict that is no pass, and the checklist for its class. `time` is when it was collected."""

    stage: str
    task: str
    gate: str
    reason: str
    failure_class: str
    inspect: tuple[str, ...]
    recover: tuple[str, ...]
    found: tuple[Diagnosis, ...]
    shard: int = 0
    attempt: int = 1
    time: float = 0.0


class Release(Struct, frozen=True, kw_only=True):
    """One planned release and where it came from."""

    id: str
    version: str
    source: str
    namespace: str
    stage: str


class Report(Struct, frozen=True, kw_only=True):
    """Everything a report shows. `status` is `pass`, `fail`, `inconclusive` or `not run`: the last stage decides.

    `troubles` are of each task's last attempt, `overcome` those of attempts that a later one followed.
    """

    run: str
    engine: str
    plan: str
    cluster: str
    owner: str
    revision: str
    target_uid: str
    status: str
    workflow: str
    sentence: str
    started: float
    finished: float
    simulated: bool
    stages: tuple[Stage, ...]
    nodes: tuple[Node, ...]
    quarantine: tuple[Entry, ...]
    approvals: tuple[Approval, ...]
    releases: tuple[Release, ...]
    tools: dict[str, str]
    troubles: tuple[Trouble, ...]
    attempts: tuple[Attempt, ...]
    overcome: tuple[Trouble, ...] = ()
    schema: int = 1
