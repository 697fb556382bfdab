"""The report as data: one run's stages, nodes, approvals and diagnoses, all taken from its evidence."""

from msgspec import Struct

from steps.contract.cancelled import Cancelled
from steps.contract.evidence import Diagnosis
from steps.contract.plural import count
from steps.contract.quarantine import Entry
from steps.contract.revision import Source as Origin
from steps.report.images import Image

NOT_RUN = "not run"
"""Status of a planned stage or gate without a record."""
QUORUM = "quorum"
"""Mark of a gate that some nodes did not pass, in a stage that went on without them."""
APPROVAL = "approval"
"""What stands for the task where a run waits for one."""


class Begun(Struct, frozen=True, kw_only=True):
    """A task that an engine began, or an approval (`task` is then `approval`) that it waited for. Times are UTC seconds since the
    epoch; `finished` is 0 while nobody saw its end."""

    stage: str
    task: str
    started: float = 0.0
    finished: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether an engine saw its beginning and not its end; an earlier attempt may have left a record."""
        return bool(self.started) and not self.finished


class Gate(Struct, frozen=True, kw_only=True):
    """One gate of a stage: its last verdict. `passed` and `expected` count nodes; 0 where it judges none. `counted` splits them by
    role where that says more. `quorum`: some nodes did not pass it, and its stage passed without them."""

    gate: str
    status: str
    reason: str = ""
    passed: int = 0
    expected: int = 0
    counted: str = ""
    quorum: bool = False

    @property
    def mark(self) -> str:
        """What people read: the status, or `quorum`, which is no failure of the stage."""
        return QUORUM if self.quorum else self.status


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
    """One planned stage. `failure_class` and `next_step` are set where it did not pass. Without a `judged` verdict the reason says
    why there is none: interrupted, cancelled, not reached, or still to come. `notes` are remarks that decided nothing. `played`
    counts the hosts that its plays recorded, in any attempt, `changed` those of them that a play changed."""

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
    judged: bool = True
    notes: tuple[str, ...] = ()
    played: int = 0
    changed: int = 0

    @property
    def hosts(self) -> str:
        """What its plays changed, for people; empty where it has none, or none left a record."""
        if not self.played:
            return ""
        if not self.changed:
            return f"{count(self.played, 'host')}: nothing changed"
        return f"{self.changed} of {count(self.played, 'host')} changed"


class Node(Struct, frozen=True, kw_only=True):
    """One expected host: status by gate id (gates that do not judge nodes are left out), and why it did not pass.

    `reason` is the first in running order, `reasons` has one for each gate that it did not pass. `places` are names of where it
    stands beside the rack: leaf switch, scalable unit. `aside_in` is the stage that set it aside.
    """

    name: str
    group: str
    rack: str
    gates: dict[str, str]
    reason: str = ""
    reasons: dict[str, str] = {}
    places: tuple[str, ...] = ()
    aside: bool = False
    aside_in: str = ""


class Approval(Struct, frozen=True, kw_only=True):
    """One answer to an approval before a stage. `asked` is when it began to wait, `time` when it was answered; of one that still
    waits, or was never answered, decision and approver are empty and `time` is 0."""

    stage: str
    decision: str
    approver: str
    evidence: str
    status: str
    reason: str
    time: float
    signed: bool = False
    approved: str = ""
    asked: float = 0.0


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
    quorum: bool = False


class Release(Struct, frozen=True, kw_only=True):
    """One planned release and where it came from."""

    id: str
    version: str
    source: str
    namespace: str
    stage: str


class Revision(Struct, frozen=True, kw_only=True):
    """What Argo CD showed of one release: the chart version and the Git revision of its values that the Application points to (what
    was planned), and the revisions that were compared last and synced last, in the order of its sources."""

    release: str
    stage: str
    task: str
    time: float
    chart: str
    planned: str
    compared: tuple[str, ...]
    synced: tuple[str, ...]


class Report(Struct, frozen=True, kw_only=True):
    """Everything a report shows. `status` is `pass`, `fail`, `inconclusive` or `not run`: the last stage decides.

    `troubles` are of each task's last attempt, `overcome` those of attempts that a later one followed.
    `opening` is what the task before all stages came to, where that is no pass: no stage began then.
    `operation` is what the run was for where that was not the whole bring-up: `add-node gpu[017-018]`;
    `upgraded` says of an upgrade from which release to which.
    `revisions` has an entry whenever what Argo CD showed of a release changed. `source` is the Git commit of the spec's file.
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
    revisions: tuple[Revision, ...] = ()
    source: Origin | None = None
    cancelled: Cancelled | None = None
    operation: str = ""
    upgraded: str = ""
    opening: Stage | None = None
    running: bool = False
    image: Image | None = None
    schema: int = 1

    @property
    def with_opening(self) -> tuple[Stage, ...]:
        """All stages, behind the task before them where that did not pass."""
        return (self.opening, *self.stages) if self.opening else self.stages
