"""A finding: one thing that keeps a node or a check from passing, before it becomes a verdict."""

from collections.abc import Iterable

from msgspec import Struct

from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, inconclusive


class Finding(Struct, frozen=True, kw_only=True):
    """What was seen, what was expected, what to do next; `status` is fail, or inconclusive where it cannot be told. `final` is for
    a fail of a node that no waiting changes."""

    status: Status
    seen: str
    expected: str
    next_step: str
    failure_class: FailureClass
    final: bool = False

    def of_node(self, node: str) -> NodeVerdict:
        """The verdict on one node."""
        return NodeVerdict(
            node=node,
            status=self.status,
            seen=self.seen,
            expected=self.expected,
            next_step=self.next_step,
            failure_class=self.failure_class,
            final=self.final,
        )

    def verdict(self, gate: str, *, final: bool = False, nodes: Iterable[NodeVerdict] = ()) -> Verdict:
        """The verdict of a gate; `final` holds for a fail only."""
        if self.status is Status.FAIL:
            return failed(
                gate,
                self.failure_class,
                seen=self.seen,
                expected=self.expected,
                next_step=self.next_step,
                final=final,
                nodes=nodes,
            )
        return inconclusive(
            gate,
            seen=self.seen,
            expected=self.expected,
            next_step=self.next_step,
            failure_class=self.failure_class,
            nodes=nodes,
        )


def fail(failure_class: FailureClass, seen: str, expected: str, next_step: str, *, final: bool = False) -> Finding:
    """A fail; `final` where no waiting changes it."""
    return Finding(status=Status.FAIL, seen=seen, expected=expected, next_step=next_step, failure_class=failure_class, final=final)


def unknown(failure_class: FailureClass, seen: str, expected: str, next_step: str) -> Finding:
    """Cannot tell; `failure_class` holds if it stays so."""
    return Finding(status=Status.INCONCLUSIVE, seen=seen, expected=expected, next_step=next_step, failure_class=failure_class)
