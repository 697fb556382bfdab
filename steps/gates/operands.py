"""Operands of an operator: when its word on them can be believed, and whether they serve enough nodes."""

from collections.abc import Sequence

from steps.contract.charts import Workload

SETTLE_SECONDS = 30.0
"""A status that tells neither generation nor time is believed only this long after the last change of the spec. The GPU Operator
looks again every 5 s while it is not ready: six looks without a transition mean that the change needed none (gpu_stack §0.2)."""


def serves(daemons: Sequence[Workload], least: int) -> bool:
    """Whether these DaemonSets together serve all but the nodes that the quorum lets go; operators themselves want every node."""
    ready, updated, desired = (sum(getattr(one, count) for one in daemons) for count in ("ready", "updated", "desired"))
    return bool(daemons) and all(one.current for one in daemons) and min(ready, updated, desired) >= least
