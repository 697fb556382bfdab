"""Verdicts: the judgement of a gate on an observation, for the whole stage and for each node."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from steps.contract import plain_text
from steps.contract.host_ranges import fold
from steps.contract.measurements import Measurement, Versions


class Status(StrEnum):
    """The four verdicts; only `pass` lets the next stage start."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


class FailureClass(StrEnum):
    """Class of a failure: seven classes of a GitOps delivery and three of a GPU platform."""

    MANIFEST_GENERATION = "manifest-generation"
    COMPARISON = "comparison"
    APPLY = "apply"
    HEALTH = "health"
    PERMISSION = "permission"
    RUNTIME = "runtime"
    DEPENDENCY = "dependency"
    HARDWARE = "hardware"
    PERFORMANCE = "performance"
    INPUT = "input"


def sentence(seen: str, expected: str, next_step: str) -> str:
    """Return `SEEN; expected EXPECTED; next: NEXT_STEP` as one line. Empty parts are left out."""
    parts = [seen, f"expected {expected}" if expected else "", f"next: {next_step}" if next_step else ""]
    return "; ".join(part for part in parts if part)


class NodeVerdict(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The judgement of a gate on one node.

    `node` is the name in the fleet, which is also the Kubernetes node name. `final`: waiting cannot change this failure.
    """

    node: str
    status: Status
    seen: str = ""
    expected: str = ""
    next_step: str = ""
    failure_class: FailureClass | None = None
    final: bool = False

    def __post_init__(self) -> None:
        _in_lines(self, "seen", "expected", "next_step")

    @property
    def sentence(self) -> str:
        """Return the verdict in words: `gpu003: seen …; expected …; next: …`."""
        text = sentence(self.seen, self.expected, self.next_step)
        return f"{self.node}: {text}" if text else self.node


class Verdict(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The judgement of a gate. Build it with `passed`, `failed`, `inconclusive` or `of_nodes`, which keep the fields consistent.

    `final`: waiting cannot change the verdict (a Job that failed for good), so a waiting step ends at once. `nodes` holds every
    node that the gate looked at, passes included; empty if the gate does not judge nodes. `measured` and `versions` are for
    reports and change nothing in the judgement. Texts may quote hosts and objects, so each is made one harmless line
    (`plain_text`).
    """

    gate: str
    status: Status
    reason: str
    seen: str = ""
    expected: str = ""
    next_step: str = ""
    failure_class: FailureClass | None = None
    final: bool = False
    nodes: tuple[NodeVerdict, ...] = ()
    notes: tuple[str, ...] = ()
    measured: tuple[Measurement, ...] = ()
    versions: Versions = {}

    def __post_init__(self) -> None:
        _in_lines(self, "reason", "seen", "expected", "next_step")
        # a fast check: almost all texts stay as they are
        if not all(map(str.isprintable, self.notes)):
            force_setattr(self, "notes", tuple(map(plain_text.line, self.notes)))

    @property
    def is_pass(self) -> bool:
        """Return True if this verdict lets the next stage start."""
        return self.status is Status.PASS

    @property
    def passed_nodes(self) -> int:
        """Return how many of `nodes` passed."""
        return sum(node.status is Status.PASS for node in self.nodes)


def _in_lines(verdict: Verdict | NodeVerdict, *fields: str) -> None:
    for field in fields:
        text: str = getattr(verdict, field)
        if not text.isprintable():
            force_setattr(verdict, field, plain_text.line(text))


def passed(gate: str, reason: str, nodes: Iterable[NodeVerdict] = (), notes: Iterable[str] = ()) -> Verdict:
    """Return a pass; `reason` says what was seen."""
    return Verdict(gate=gate, status=Status.PASS, reason=reason, nodes=tuple(nodes), notes=tuple(notes))


def failed(
    gate: str,
    failure_class: FailureClass,
    *,
    seen: str,
    expected: str,
    next_step: str,
    final: bool = False,
    nodes: Iterable[NodeVerdict] = (),
) -> Verdict:
    """Return a fail with all parts of its sentence: what was seen, what was expected, what to do next."""
    return Verdict(
        gate=gate,
        status=Status.FAIL,
        reason=sentence(seen, expected, next_step),
        seen=seen,
        expected=expected,
        next_step=next_step,
        failure_class=failure_class,
        final=final,
        nodes=tuple(nodes),
    )


def inconclusive(
    gate: str,
    *,
    seen: str,
    expected: str,
    next_step: str,
    failure_class: FailureClass = FailureClass.HEALTH,
    nodes: Iterable[NodeVerdict] = (),
) -> Verdict:
    """Return a verdict that cannot be decided yet: work is in progress, or data missing. `failure_class` applies if it stays so."""
    return Verdict(
        gate=gate,
        status=Status.INCONCLUSIVE,
        reason=sentence(seen, expected, next_step),
        seen=seen,
        expected=expected,
        next_step=next_step,
        failure_class=failure_class,
        nodes=tuple(nodes),
    )


def of_nodes(gate: str, nodes: Iterable[NodeVerdict], *, what: str, notes: Iterable[str] = ()) -> Verdict:
    """Return the verdict that combines verdicts on nodes; it passes only if there are nodes and all pass.

    The quorum is not applied here, but later by the judge. The result is final if every node's verdict that is no pass is final.
    `what` names what a passing node has, such as `8 GPUs allocatable`.
    """
    rows = tuple(nodes)
    bad = [row for row in rows if row.status not in (Status.PASS, Status.SKIPPED)]
    if not rows:
        return inconclusive(
            gate,
            seen="no node was looked at",
            expected="at least one expected node",
            next_step="check that the fleet lists the nodes of this stage",
            failure_class=FailureClass.INPUT,
        )
    good = sum(row.status is Status.PASS for row in rows)
    if not bad:
        return passed(gate, f"{good} of {len(rows)} nodes: {what}", rows, notes)
    # a failed node tells more than an inconclusive one
    first = next((row for row in bad if row.status is Status.FAIL), bad[0])
    status = Status.FAIL if any(row.status is Status.FAIL for row in bad) else Status.INCONCLUSIVE
    others = [row.node for row in bad if row is not first]
    more = f"; and {len(others)} more: {fold(others)}" if others else ""
    return Verdict(
        gate=gate,
        status=status,
        reason=f"{good} of {len(rows)} nodes: {what}; {first.sentence}{more}",
        seen=f"{first.node}: {first.seen}",
        expected=first.expected,
        next_step=first.next_step,
        failure_class=first.failure_class or FailureClass.HEALTH,
        final=all(row.final for row in bad),
        nodes=rows,
        notes=tuple(notes),
    )


class CauseRank(StrEnum):
    """Place of an error in a chain of causes, the first one first: a member can bring about those after it, not those before."""

    DEVICE = "device"
    """A device, its link or its driver reports its own failure."""
    SETTING = "setting"
    """A limit, a size, a version or a configuration with which the work cannot succeed."""
    PATH = "path"
    """Two ends cannot be connected: address, route, name, or credential."""
    OPERATION = "operation"
    """An operation failed or a process died on one host, and its text gives no closer reason."""
    SILENCE = "silence"
    """The other end stopped to answer: the path broke, or what runs there ended."""
    UNKNOWN = "unknown"
    """A warning that no rule knows, quoted as it stands."""
    CONSEQUENCE = "consequence"
    """A report that something else ended or failed."""


_PLACE = {rank: place for place, rank in enumerate(CauseRank)}


class ToolError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error that a reader recognised in tool output: its cause, its failure class, and the line that reports it.

    `host` and `device` are where it happened, `peer` is the other end of the connection; empty if the text does not name them.
    `next_step` is what a person does about this cause; empty if only the log can tell.
    """

    cause: str
    failure_class: FailureClass
    line: str
    host: str = ""
    device: str = ""
    peer: str = ""
    next_step: str = ""
    rank: CauseRank = CauseRank.OPERATION

    @property
    def place(self) -> int:
        """Return the number of the error's rank: the lower one is nearer to the first cause."""
        return _PLACE[self.rank]


def by_cause(errors: Iterable[ToolError]) -> tuple[ToolError, ...]:
    """Return errors of several readers with causes before their consequences; errors of one rank keep their order."""
    return tuple(sorted(errors, key=lambda error: error.place))
