"""Rules for operands, the workloads that an operator creates: when a status counts, and when enough nodes are served."""

from collections.abc import Sequence

from steps.contract.charts import Workload

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
