"""Rules for operands, the workloads that an operator creates, and for the Node Feature Discovery (NFD) that labels its nodes."""

import re
from collections.abc import Callable, Sequence

from steps.contract.objects.charts import Workload
from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown

SETTLE_SECONDS = 30.0
"""Seconds after a change of spec before a status without observedGeneration and time is believed.

While it is not ready, the GPU Operator reconciles every 5 s. Six reconciliations without a transition mean that the change needed
none.
"""


OPERANDS = {
    "state-driver": ("nvidia-driver-daemonset", "nvidia-driver-daemonset-", "nvidia-gpu-driver-"),
    "state-container-toolkit": ("nvidia-container-toolkit-daemonset",),
    "state-operator-validation": ("nvidia-operator-validator",),
    "state-device-plugin": ("nvidia-device-plugin-daemonset",),
    "state-mps-control-daemon": ("nvidia-device-plugin-mps-control-daemon",),
    "state-dcgm": ("nvidia-dcgm", "nvidia-dcgm-dra"),
    "state-dcgm-exporter": ("nvidia-dcgm-exporter",),
    "gpu-feature-discovery": ("gpu-feature-discovery",),
    "state-mig-manager": ("nvidia-mig-manager",),
    "state-node-status-exporter": ("nvidia-node-status-exporter",),
    "state-dra-driver": ("nvidia-dra-driver-kubelet-plugin",),
    "state-dra-validation": ("nvidia-dra-validator",),
    "state-dcgm-exporter-dra": ("nvidia-dcgm-exporter-dra",),
}
"""State of the GPU Operator → the DaemonSets behind it, of a ClusterPolicy or a GPUCluster. A name that ends in a dash is a prefix.

Sources: NVIDIA/gpu-operator controllers/state_manager.go, internal/state/, assets/ and manifests/.
"""


def not_ready_states(message: str) -> tuple[str, ...]:
    """Return the state names in a message `… states not ready: [state-driver state-device-plugin]` of the GPU Operator."""
    match = re.search(r"states not ready: \[([^\]]*)\]", message)
    return tuple(match[1].split()) if match else ()


def is_operand(name: str, wanted: str) -> bool:
    """Return True if a DaemonSet has the wanted name. One ending in a dash is a prefix: driver DaemonSets carry OS and hash."""
    return name.startswith(wanted) if wanted.endswith("-") else name == wanted


def only_short(message: str, operands: Sequence[Workload], is_enough: Callable[[Sequence[Workload]], bool]) -> bool:
    """Return True if each operand that the GPU Operator's message calls not ready lacks nodes, and no more than `is_enough` allows.

    The operator wants all nodes, so its root resource stays notReady for as long as nodes set aside by the quorum are there. An
    operand that lacks no node is not ready for another reason.
    """
    states = not_ready_states(message)
    daemons = [[entry for entry in operands if _is_behind(state, entry.name)] for state in states]
    return bool(states) and all(any(_lacks_nodes(entry) for entry in behind) and is_enough(behind) for behind in daemons)


def _lacks_nodes(daemon: Workload) -> bool:
    # the operator also waits for pods of the newest spec; one that updates on delete keeps an old pod, which is ready
    return min(daemon.ready, daemon.updated) < daemon.desired


def _is_behind(state: str, name: str) -> bool:
    return any(is_operand(name, wanted) for wanted in OPERANDS.get(state, ()))


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
