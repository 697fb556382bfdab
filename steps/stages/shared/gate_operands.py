"""Rules for operands, the workloads that an operator creates, and for the Node Feature Discovery (NFD) that labels its nodes."""

import re
from collections.abc import Callable, Iterable, Sequence

from steps.contract.objects.charts import Workload
from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown

SETTLE_SECONDS = 30.0
"""Seconds after a change of spec before a status without observedGeneration and time is believed.

While it is not ready, the GPU Operator reconciles every 5 s. Six reconciliations without a transition mean that the change needed
none.
"""


OPERAND_OF = {
    "state-driver": "nvidia-driver-daemonset",
    "state-container-toolkit": "nvidia-container-toolkit-daemonset",
    "state-operator-validation": "nvidia-operator-validator",
    "state-device-plugin": "nvidia-device-plugin-daemonset",
    "state-mps-control-daemon": "nvidia-device-plugin-mps-control-daemon",
    "state-dcgm": "nvidia-dcgm",
    "state-dcgm-exporter": "nvidia-dcgm-exporter",
    "gpu-feature-discovery": "gpu-feature-discovery",
    "state-mig-manager": "nvidia-mig-manager",
    "state-node-status-exporter": "nvidia-node-status-exporter",
}
"""State of the operator → DaemonSet behind it (NVIDIA/gpu-operator controllers/state_manager.go and assets/)."""


def not_ready_states(message: str) -> tuple[str, ...]:
    """Return the state names in a message `… states not ready: [state-driver state-device-plugin]` of the GPU Operator."""
    match = re.search(r"states not ready: \[([^\]]*)\]", message)
    return tuple(match[1].split()) if match else ()


def only_short(message: str, operands: Iterable[Workload], is_enough: Callable[[Workload], bool]) -> bool:
    """Return True if each operand that the GPU Operator's message calls not ready serves enough nodes by `is_enough`.

    The operator wants all nodes, so its root resource stays notReady for as long as nodes set aside by the quorum are there.
    """
    states, by_name = not_ready_states(message), {entry.name: entry for entry in operands}
    daemons = [by_name.get(OPERAND_OF.get(state, "")) for state in states]
    return bool(states) and all(daemon is not None and is_enough(daemon) for daemon in daemons)


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
