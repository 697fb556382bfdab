"""A finding: one problem of a node, a check or a stage, before it becomes a verdict."""

from msgspec import Struct

from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, inconclusive


class Finding(Struct, frozen=True, kw_only=True):
    """A problem that a check of a gate found: the fact seen, the fact expected, and the next step.

    The gate makes its verdict of findings. `status` is fail, or inconclusive if the data do not decide. `final` marks a fail that
    no waiting changes.
    """

    status: Status
    seen: str
    expected: str
    next_step: str
    failure_class: FailureClass
    final: bool = False

    def of_node(self, node: str) -> NodeVerdict:
        """Return the finding as the verdict on one node."""
        return NodeVerdict(
            node=node,
            status=self.status,
            seen=self.seen,
            expected=self.expected,
            next_step=self.next_step,
            failure_class=self.failure_class,
            final=self.final,
        )

    def verdict(self, gate: str, *, final: bool = False) -> Verdict:
        """Return the finding as the verdict of a gate. A fail is final if the finding or the caller says so."""
        if self.status is Status.INCONCLUSIVE:
            return inconclusive(
                gate, seen=self.seen, expected=self.expected, next_step=self.next_step, failure_class=self.failure_class
            )
        return failed(
            gate,
            self.failure_class,
            seen=self.seen,
            expected=self.expected,
            next_step=self.next_step,
            final=final or self.final,
        )


def node_verdict(node: str, finding: Finding | None, good: str) -> NodeVerdict:
    """Return the verdict on a node: that of its finding, or a pass for which `good` says what was seen."""
    return finding.of_node(node) if finding else NodeVerdict(node=node, status=Status.PASS, seen=good)


def fail(failure_class: FailureClass, seen: str, expected: str, next_step: str, *, final: bool = False) -> Finding:
    """Return a finding with status fail; `final` marks one that no waiting changes."""
    return Finding(status=Status.FAIL, seen=seen, expected=expected, next_step=next_step, failure_class=failure_class, final=final)


def unknown(failure_class: FailureClass, seen: str, expected: str, next_step: str) -> Finding:
    """Return a finding with status inconclusive; `failure_class` applies if it is still inconclusive at the gate's deadline."""
    return Finding(status=Status.INCONCLUSIVE, seen=seen, expected=expected, next_step=next_step, failure_class=failure_class)
