"""Rules for operands, the workloads that an operator creates, and for the Node Feature Discovery (NFD) that labels its nodes."""

from collections.abc import Sequence

from steps.contract.objects.charts import Workload
from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown

SETTLE_SECONDS = 30.0
"""Seconds after a change of spec before a status without observedGeneration and time is believed.

While it is not ready, the GPU Operator reconciles every 5 s. Six reconciliations without a transition mean that the change needed
none.
"""


def serves(daemons: Sequence[Workload], least: int) -> bool:
    """Return True if the DaemonSets together serve at least `least` nodes. The operators themselves insist on every node."""
    ready, updated, desired = (sum(getattr(daemon, count) for daemon in daemons) for count in ("ready", "updated", "desired"))
    # desired counts too: a DaemonSet that selects no node is complete at once
    return bool(daemons) and all(daemon.current for daemon in daemons) and min(ready, updated, desired) >= least


def one_nfd(nfd: tuple[str, ...]) -> Finding | None:
    """Return a finding unless the cluster has exactly one NFD worker DaemonSet.

    Without NFD, no GPU is found. Two NFDs overwrite each other's labels, and GPU Operator and Network Operator each bring one (see
    `steps/docs/facts/gpu.md`, Node Feature Discovery).
    """
    if not nfd:
        step = "set nfd.enabled in the GPU Operator's values"
        return unknown(FailureClass.DEPENDENCY, "no NFD worker DaemonSet in the cluster", "exactly one", step)
    if len(nfd) > 1:
        seen, step = f"{len(nfd)} NFD workers: {', '.join(nfd)}", "remove the other: they overwrite each other's node labels"
        return fail(FailureClass.DEPENDENCY, seen, "exactly one (the GPU Operator's)", step)
    return None
