"""What the GPU Operator's validator says of a node: its init containers run in order, and the one that is stuck names the layer."""

from msgspec import Struct

from steps.contract.stages.gpu_operator import NodesExpectation, NodesObservation, Validator
from steps.contract.verdict import FailureClass
from steps.gates.causes import RUNTIME_REASONS
from steps.gates.finding import Finding, fail, unknown


class Stuck(Struct, frozen=True):
    """What it means when one init container of the validator does not end."""

    failure_class: FailureClass
    what: str
    next_step: str


STUCK = {
    "driver-validation": Stuck(
        FailureClass.DEPENDENCY,
        "the driver is not loaded",
        "log of nvidia-driver-daemonset; on the host: nouveau, a second driver, dmesg",
    ),
    "toolkit-validation": Stuck(
        FailureClass.RUNTIME,
        "containerd does not know the NVIDIA runtime",
        "CONTAINERD_SOCKET of the toolkit, /var/lib/rancher/rke2/agent",
    ),
    "cuda-validation": Stuck(
        FailureClass.RUNTIME, "CUDA does not start", "nvidia-smi -q Fabric State, and nvidia-fabricmanager on NVSwitch machines"
    ),
    "plugin-validation": Stuck(
        FailureClass.HEALTH, "the device plugin advertises nothing usable", "log of nvidia-device-plugin-daemonset, MIG state"
    ),
}
"""The validator's init containers run in this order; the one that is stuck names the layer (gpu_stack §1.4)."""


def all_ready(seen: NodesObservation, want: NodesExpectation) -> bool:
    """Whether the validators' DaemonSet answers for every node: complete, for at least the expected nodes. Where it is not, the
    pods are read one by one, and a node without one has none."""
    validators = seen.validators
    if validators is None or not validators.current or any(node.validator is not None for node in seen.nodes):
        return False
    return min(validators.ready, validators.updated) >= validators.desired >= max(len(want.nodes), 1)


def stuck(mine: Validator) -> Finding:
    """Why a node's validator is not ready."""
    meaning, expected = STUCK.get(mine.stuck), "all validations successful"
    said = f"{mine.reason} {mine.message}".strip()
    if meaning is None:
        step = f"kubectl -n gpu-operator describe pod {mine.pod}"
        return unknown(FailureClass.HEALTH, f"validator {mine.pod} is not ready: {said}".rstrip(": "), expected, step)
    seen = f"validator stuck in {mine.stuck} ({meaning.what}): {said}".rstrip(": ")
    make = fail if mine.reason in RUNTIME_REASONS else unknown
    return make(meaning.failure_class, seen, expected, meaning.next_step)
