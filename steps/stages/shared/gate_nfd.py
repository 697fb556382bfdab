"""Checks that exactly one Node Feature Discovery (NFD) labels the nodes."""

from steps.contract.verdict import FailureClass, Verdict, failed, inconclusive


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
