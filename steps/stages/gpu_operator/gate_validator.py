"""Judges the GPU Operator's validator on a node: its init containers run in order; the one that hangs names the failing layer."""

from msgspec import Struct

from steps.contract.verdict import FailureClass
from steps.stages.gpu_operator.contract import NodesExpectation, NodesObservation, Validator
from steps.stages.shared.causes import RUNTIME_REASONS
from steps.stages.shared.finding import Finding, fail, unknown


class Stuck(Struct, frozen=True):
    """Meaning of one init container of the validator that does not end: failure class, text and next step."""

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
"""Init container → its meaning if it hangs, in running order (NVIDIA/gpu-operator assets/state-operator-validation)."""


HOST_DRIVER = Stuck(
    FailureClass.DEPENDENCY,
    "the host's driver does not answer",
    "nvidia-smi and dmesg on the host: nouveau, a module of another version, Secure Boot (the operator runs no driver pod here)",
)
"""Meaning of `driver-validation` where the hosts bring their own driver: there is no driver pod whose log could tell."""


def all_ready(seen: NodesObservation, want: NodesExpectation) -> bool:
    """Return True if the validators' DaemonSet is ready on all its nodes, and these are at least as many as expected.

    If it is not, the pods are read one by one.
    """
    validators = seen.validators
    if validators is None or not validators.current or any(node.validator is not None for node in seen.nodes):
        return False
    # the DaemonSet may also select nodes that are not expected, so more is fine
    return min(validators.ready, validators.updated) >= validators.desired >= max(len(want.nodes), 1)


def stuck(mine: Validator, want: NodesExpectation) -> Finding:
    """Return the finding that explains why a node's validator is not ready."""
    meaning, expected = STUCK.get(mine.stuck), "all validations successful"
    if want.host_driver and mine.stuck == "driver-validation":
        meaning = HOST_DRIVER
    reason = f"{mine.reason} {mine.message}".strip()
    if meaning is None:
        step = f"kubectl -n gpu-operator describe pod {mine.pod}"
        return unknown(FailureClass.HEALTH, f"validator {mine.pod} is not ready: {reason}".rstrip(": "), expected, step)
    seen = f"validator stuck in {mine.stuck} ({meaning.what}): {reason}".rstrip(": ")
    make = fail if mine.reason in RUNTIME_REASONS else unknown
    return make(meaning.failure_class, seen, expected, meaning.next_step)
