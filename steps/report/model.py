"""The report as data: stages, nodes, approvals and diagnoses of one run, all taken from its evidence."""

from msgspec import Struct

from steps.contract.measurements import Measurement, Versions
from steps.contract.plain_text import count
from steps.contract.run_records import Cancelled
from steps.contract.runs.evidence import Diagnosis
from steps.contract.runs.quarantine import QuarantineEntry
from steps.contract.runs.revision import SpecSource
from steps.report.pictures import Curve, RoundSummary

NOT_RUN = "not run"
"""Status in a report of a planned stage or gate that left no record."""
QUORUM = "quorum"
"""Status in a report of a gate that some nodes did not pass, in a stage that passed without them."""
APPROVAL = "approval"
"""Value of `Begun.task` that stands for a wait for an approval."""


class Begun(Struct, frozen=True, kw_only=True):
    """The beginning of a task, or of a wait for an approval (`task` is then `approval`), as an engine saw it.

    Times are UTC seconds since the epoch; `finished` is 0 if no end was seen.
    """

    stage: str
    task: str
    started: float = 0.0
    finished: float = 0.0

    @property
    def is_open(self) -> bool:
        """Return True if an engine saw the task begin and not end. An earlier attempt of the task may have left a record."""
        return bool(self.started) and not self.finished


class GateReport(Struct, frozen=True, kw_only=True):
    """A gate in a report, with its last verdict.

    `passed` and `expected` count nodes, 0 if the gate judges none. `counted` splits them by role if that says more. `quorum`: some
    nodes did not pass, and the stage passed without them.
    """

    gate: str
    status: str
    reason: str = ""
    passed: int = 0
    expected: int = 0
    counted: str = ""
    quorum: bool = False

    @property
    def mark(self) -> str:
        """Return the status as shown to people: `quorum` if the stage passed without some nodes, else the gate's own."""
        return QUORUM if self.quorum else self.status


class Attempt(Struct, frozen=True, kw_only=True):
    """An attempt of a task in a report, taken from its stored record. Times are UTC seconds since the epoch."""

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


class StageReport(Struct, frozen=True, kw_only=True):
    """A planned stage in a report.

    `failure_class` and `next_step` are set if it did not pass. If it was not `judged`, the reason says why: interrupted, cancelled,
    not reached, or pending. `notes` are remarks without influence on the verdict. `played` counts hosts that its plays recorded in
    any attempt, `changed` those that a play changed.
    """

    id: str
    title: str
    status: str
    reason: str
    gates: tuple[GateReport, ...]
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
        """Return how many hosts the stage's plays changed, in words; empty if it has no plays or none left a record."""
        if not self.played:
            return ""
        if not self.changed:
            return f"{count(self.played, 'host')}: nothing changed"
        return f"{self.changed} of {count(self.played, 'host')} changed"


class HostReport(Struct, frozen=True, kw_only=True):
    """A host in a report: its status by gate id (only gates that judge nodes), and why it did not pass.

    `reason` is the first in running order, `reasons` has one for each gate that it did not pass. `places` are its locations beside
    the rack: leaf switch, scalable unit. `aside`: it was quarantined, by stage `aside_in`.
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


class ApprovalReport(Struct, frozen=True, kw_only=True):
    """The approval before a stage in a report.

    `asked` is when the run began to wait, `time` when somebody answered, in UTC seconds. If nobody has answered, decision and
    approver are empty and `time` is 0.
    """

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


class TroubleReport(Struct, frozen=True, kw_only=True):
    """Findings about a verdict that is no pass, and the checklist for its failure class.

    `found` are the findings, `time` is when they were collected (UTC seconds).
    """

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


class ReleaseReport(Struct, frozen=True, kw_only=True):
    """A Helm release of the plan, with its version and the source of its chart."""

    id: str
    version: str
    source: str
    namespace: str
    stage: str


class RevisionReport(Struct, frozen=True, kw_only=True):
    """A state of one release that Argo CD showed at a time.

    `chart` and `planned` are the chart version and the Git revision of its values in the Application. `compared` and `synced` are
    the revisions of the last comparison and sync, in the order of its sources.
    """

    release: str
    stage: str
    task: str
    time: float
    chart: str
    planned: str
    compared: tuple[str, ...]
    synced: tuple[str, ...]


class UntestedReport(Struct, frozen=True, kw_only=True):
    """A test of a planned stage that the spec rules out, or the machine that runs it, with the reason."""

    stage: str
    test: str
    reason: str

    @property
    def level(self) -> bool:
        """Return True if the test runs at a lower level than the spec asks for."""
        return self.reason.startswith("level ")


class Report(Struct, frozen=True, kw_only=True):
    """Everything that a report about one run shows. `status` is `pass`, `fail`, `inconclusive` or `not run`.

    `troubles` are those of each task's last attempt, `overcome` those of attempts that a later one followed. `opening` is the
    result of the task before all stages if it is no pass; no stage began then. `operation` is the purpose of the run if it is
    not the whole bring-up: `add-node gpu[017-018]`. `upgraded` names the releases of an upgrade. `revisions` has an entry for
    each change that Argo CD showed of a release. `source` is the Git commit of the spec's file. `image` or `stack` is the part
    that the run's product writes itself (`product_parts`). `untested` are the tests that did not run although their stage did.
    `unsealed` has the differences of an ended run from its seal. `acceptance` is the sentence that accepts the cluster or
    names what is at fault; empty without stage validation.
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
    stages: tuple[StageReport, ...]
    nodes: tuple[HostReport, ...]
    quarantine: tuple[QuarantineEntry, ...]
    approvals: tuple[ApprovalReport, ...]
    releases: tuple[ReleaseReport, ...]
    tools: dict[str, str]
    troubles: tuple[TroubleReport, ...]
    attempts: tuple[Attempt, ...]
    overcome: tuple[TroubleReport, ...] = ()
    revisions: tuple[RevisionReport, ...] = ()
    source: SpecSource | None = None
    cancelled: Cancelled | None = None
    operation: str = ""
    upgraded: str = ""
    opening: StageReport | None = None
    running: bool = False
    unsealed: tuple[str, ...] = ()
    image: Struct | None = None
    stack: Struct | None = None
    untested: tuple[UntestedReport, ...] = ()
    measured: tuple[Measurement, ...] = ()
    curves: tuple[Curve, ...] = ()
    scaling: tuple[tuple[int, float], ...] = ()
    localisation: tuple[RoundSummary, ...] = ()
    versions: Versions = {}
    acceptance: str = ""
    schema: int = 1

    @property
    def product(self) -> Struct | None:
        """Return the part that the run's product writes; None for a bring-up."""
        return self.image if self.image is not None else self.stack

    @property
    def badge(self) -> str:
        """Return the status as a headline has it: a pass says how many nodes were set aside, `pass, 2 set aside`."""
        return f"{self.status}, {len(self.aside)} set aside" if self.aside and self.status == "pass" else self.status

    @property
    def aside(self) -> tuple[str, ...]:
        """Return the names of the nodes that were quarantined."""
        return tuple(dict.fromkeys(entry.node for entry in self.quarantine))

    @property
    def accepted(self) -> tuple[str, ...]:
        """Return the names of the nodes that passed every gate that judged them; empty unless the run passed.

        A node that no gate judged is not accepted.
        """
        aside = set(self.aside)
        good = (node for node in self.nodes if node.gates and set(node.gates.values()) <= {"pass", "skipped"})
        return tuple(node.name for node in good if node.name not in aside) if self.status == "pass" else ()

    @property
    def with_opening(self) -> tuple[StageReport, ...]:
        """Return all stages; if the task before all stages did not pass, it comes first."""
        return (self.opening, *self.stages) if self.opening else self.stages
