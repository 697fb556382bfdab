"""Rules for operands, the workloads that an operator creates, and for the Node Feature Discovery (NFD) that labels its nodes."""

from collections.abc import Sequence

from steps.contract.charts import Workload
from steps.contract.verdict import FailureClass, Verdict, failed, inconclusive

SETTLE_SECONDS = 30.0
"""Seconds after a change of spec before a status without observedGeneration and time is believed.

While it is not ready, the GPU Operator reconciles every 5 s. Six reconciliations without a transition mean that the change needed
none.
"""


def serves(daemons: Sequence[Workload], least: int) -> bool:
    """Return True if these DaemonSets together serve at least `least` nodes; the operators themselves want every node."""
    ready, updated, desired = (sum(getattr(daemon, count) for daemon in daemons) for count in ("ready", "updated", "desired"))
    # desired counts too: a DaemonSet that selects no node is complete at once
    return bool(daemons) and all(daemon.current for daemon in daemons) and min(ready, updated, desired) >= least


def one_nfd(gate: str, nfd: tuple[str, ...]) -> Verdict | None:
    """Return a verdict unless the cluster has exactly one NFD worker DaemonSet; None if it has.

    Without NFD, no GPU is found. Two NFDs overwrite each other's labels, and GPU Operator and Network Operator each bring one (see
    `steps/docs/facts/gpu.md`, Node Feature Discovery).
    """
    if len(nfd) == 1:
        return None
    if not nfd:
        return inconclusive(
            gate,
            seen="no NFD worker DaemonSet in the cluster",
            expected="exactly one",
            next_step="set nfd.enabled in the GPU Operator's values",
            failure_class=FailureClass.DEPENDENCY,
        )
    return failed(
        gate,
        FailureClass.DEPENDENCY,
        seen=f"{len(nfd)} NFD workers: {', '.join(nfd)}",
        expected="exactly one (the GPU Operator's)",
        next_step="remove the other: they overwrite each other's node labels",
    )
