"""Whether exactly one NFD labels the nodes, whoever installed it."""

from steps.contract.verdict import FailureClass, Verdict, failed, inconclusive


def one_nfd(gate: str, nfd: tuple[str, ...]) -> Verdict | None:
    """Not exactly one NFD: with none no GPU is found, two overwrite each other's labels (gpu_stack §0.8)."""
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
