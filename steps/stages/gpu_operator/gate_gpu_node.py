"""Judges a GPU node. Checks follow the order in which driver, labels, validator and resources come up; the first failure wins."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from steps.contract.verdict import FailureClass, NodeVerdict
from steps.stages.gpu_operator import gate_validator
from steps.stages.gpu_operator.contract import GPU_LABELS, AdvertisingMode, GpuNode, NodesExpectation, NodesObservation
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown

UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
MEMORY_SHARE = 0.98
"""Least share of the usual GPU memory; a GPU with less has lost some of it. Firmware versions differ by a few MiB."""


class Look(Struct, frozen=True):
    """Input of each check of one GPU node: its observation, the expectation, and the usual GPU memory."""

    node: GpuNode
    seen: NodesObservation
    want: NodesExpectation
    usual_memory: int

    @property
    def gpus(self) -> int:
        """Return the number of GPUs that this node must have."""
        return self.want.others.get(self.node.name, self.want.gpus)


def judge_node(name: str, node: GpuNode | None, seen: NodesObservation, want: NodesExpectation, usual_memory: int) -> NodeVerdict:
    """Return the verdict on one expected node. `usual_memory` is the GPU memory that most nodes show, in MiB."""
    if node is None:
        step = "see stage rke2: the agent has not joined, or was deleted"
        return fail(FailureClass.DEPENDENCY, "no such node in the cluster", "a registered node", step).of_node(name)
    look = Look(node, seen, want, usual_memory)
    checks = _DRA_CHECKS if want.mode is AdvertisingMode.GPU_CLUSTER else _CHECKS
    problem = next((finding for check in checks if (finding := check(look)) is not None), None)
    return node_verdict(name, problem, f"{look.gpus} GPUs")


def _alive(look: Look) -> Finding | None:
    step = "the container toolkit restarts RKE2 once (wait); then journalctl -u rke2-agent"
    return None if look.node.ready else unknown(FailureClass.HEALTH, "node is not Ready", "Ready", step)


def _discovered(look: Look) -> Finding | None:
    if any(look.node.labels.get(label) == "true" for label in GPU_LABELS):
        return None
    expected, step = "label feature.node.kubernetes.io/pci-10de.present", "lspci -d 10de: on the node, then the NFD worker's log"
    return unknown(FailureClass.HARDWARE, "NFD found no NVIDIA device", expected, step)


def _deployed(look: Look) -> Finding | None:
    node = look.node
    # this label, which a person sets, disables all operands on the node
    if node.paused.get("operands") == "false":
        seen = "operands are disabled by label nvidia.com/gpu.deploy.operands=false"
        step = f"kubectl label node {node.name} nvidia.com/gpu.deploy.operands-"
        return fail(FailureClass.INPUT, seen, "no such label", step)
    # the operator found a driver on the host and keeps its driver pod away
    if node.paused.get("driver") == "pre-installed":
        step = "set accelerator.driver: host for such machines, or remove the host's driver"
        return fail(FailureClass.INPUT, "the host has a driver of its own", "none, since the operator installs it", step)
    halted = next((f"{key} is {value}" for key, value in node.paused.items() if value.startswith("paused")), "")
    if halted:
        step = "an upgrade or MIG change is under way, or was left behind: log of the driver manager"
        return unknown(FailureClass.RUNTIME, halted, "true", step)
    if not node.deployed or node.labels.get("nvidia.com/gpu.present") != "true":
        seen, expected = "the operator has not marked this node as a GPU node", "labels nvidia.com/gpu.present and gpu.deploy.*"
        return unknown(FailureClass.DEPENDENCY, seen, expected, "read the operator's log")
    return None


def _upgrade(look: Look) -> Finding | None:
    state = look.node.labels.get(UPGRADE_STATE, "")
    if state in ("", "upgrade-done"):
        return None
    if state == "upgrade-failed":
        step = "log of the operator and of nvidia-driver-daemonset"
        return fail(FailureClass.RUNTIME, "the driver upgrade failed", "upgrade-done", step)
    step = "see which pods keep the node from being drained"
    return unknown(FailureClass.RUNTIME, f"driver upgrade is at {state}", "upgrade-done", step)


def _validated(look: Look) -> Finding | None:
    mine = look.node.validator
    if mine is not None:
        return None if mine.ready else gate_validator.stuck(mine)
    if gate_validator.all_ready(look.seen, look.want):
        return None
    step = "kubectl -n gpu-operator get ds; see why the node is not selected"
    return unknown(FailureClass.DEPENDENCY, "no validator pod on this node", "a ready validator", step)


def _product(look: Look) -> Finding | None:
    product = look.node.labels.get("nvidia.com/gpu.product", "")
    if not product:
        expected, step = "written by GPU feature discovery", "log of gpu-feature-discovery"
        return unknown(FailureClass.HEALTH, "no label nvidia.com/gpu.product", expected, step)
    if look.want.products and product not in look.want.products:
        step = "correct accelerator.product (or product_label) in the spec, or the machine"
        return fail(FailureClass.INPUT, f"product is {product}", " or ".join(look.want.products), step)
    return None


def _count(look: Look) -> Finding | None:
    labels = look.node.labels
    if look.want.products and labels.get("nvidia.com/gpu.product") != look.want.products[0]:
        return None  # sharing changed the labels: they count slices now
    counted, memory = labels.get("nvidia.com/gpu.count", ""), labels.get("nvidia.com/gpu.memory", "")
    if counted != str(look.gpus):
        step = "nvidia-smi -L and dmesg (Xid, fallen off the bus) on the node"
        return fail(FailureClass.HARDWARE, f"feature discovery counts {counted or 'no'} GPUs", str(look.gpus), step)
    if not memory.isdigit():
        return unknown(FailureClass.HEALTH, "no label nvidia.com/gpu.memory", "MiB per GPU", "log of gpu-feature-discovery")
    if int(memory) < look.usual_memory * MEMORY_SHARE:
        step = "nvidia-smi -q: remapped rows, ECC, a GPU of another kind"
        return fail(FailureClass.HARDWARE, f"GPU memory is {memory} MiB", f"{look.usual_memory} MiB as on most nodes", step)
    return None


def _driver(look: Look) -> Finding | None:
    return _wanted_driver(look, [look.node.labels.get("nvidia.com/cuda.driver-version.full", "")])


def _device_drivers(look: Look) -> Finding | None:
    """Check the driver versions that the DRA devices report: GPUCluster runs no feature discovery whose labels could tell them."""
    return _wanted_driver(look, look.node.drivers or [""])


def _wanted_driver(look: Look, versions: Iterable[str]) -> Finding | None:
    """Return a failure if a driver version does not begin with the wanted one.

    Versions are compared by their numbers: DRA writes semantic versions without leading zeros.
    """
    wanted = _numbers(look.want.driver)
    odd = next((version for version in versions if _numbers(version)[: len(wanted)] != wanted), None)
    if not look.want.driver or odd is None:
        return None
    step = "restart the driver pod of this node (its DaemonSet updates on delete only), or update the host's driver"
    return fail(FailureClass.COMPARISON, f"driver is {odd or 'not known'}", look.want.driver, step)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in version.split("."))


def _advertised(look: Look) -> Finding | None:
    node, shapes = look.node, [{key: count * look.gpus for key, count in shape.items()} for shape in look.want.shapes]
    capacity, allocatable = node.capacity, node.allocatable
    if not shapes or any(
        all(capacity.get(key, 0) == count == allocatable.get(key, 0) for key, count in shape.items()) for shape in shapes
    ):
        return None
    for key, count in shapes[0].items():
        total, free = capacity.get(key, 0), allocatable.get(key, 0)
        # capacity counts all devices, allocatable only the healthy ones
        if total == count and free < total:
            expected = f"all {count}: fewer means that the device plugin found unhealthy devices"
            step = "dmesg | grep -i xid on the node"
            return fail(FailureClass.HARDWARE, f"{key}: {free} of {total} allocatable", expected, step)
    shown = ", ".join(f"{key} {count}" for key, count in sorted(capacity.items())) or "no GPU resource"
    goal = ", ".join(f"{key} {count}" for key, count in shapes[0].items())
    if not any(capacity.get(key, 0) for key in shapes[0]):
        step = "log of nvidia-device-plugin-daemonset on this node"
        return unknown(FailureClass.HEALTH, f"advertises {shown}", goal, step)
    return fail(FailureClass.HARDWARE, f"advertises {shown}", goal, "nvidia-smi -L on the node; MIG or sharing left on?")


def _devices(look: Look) -> Finding | None:
    if look.node.devices == look.gpus:
        return None
    goal = f"{look.gpus} devices of gpu.nvidia.com"
    if look.node.devices <= 0:
        step = "log of nvidia-dra-driver-kubelet-plugin"
        return unknown(FailureClass.HEALTH, "no ResourceSlice with GPUs", goal, step)
    step = "nvidia-smi -L and dmesg on the node; MIG left on?"
    return fail(FailureClass.HARDWARE, f"{look.node.devices} DRA devices", goal, step)


def _schedulable(look: Look) -> Finding | None:
    step = f"kubectl uncordon {look.node.name}, once you know who cordoned it"
    return unknown(FailureClass.HEALTH, "node is cordoned", "schedulable", step) if look.node.unschedulable else None


Check = Callable[[Look], Finding | None]
_CHECKS: tuple[Check, ...] = (
    _alive,
    _discovered,
    _deployed,
    _upgrade,
    _validated,
    _product,
    _count,
    _driver,
    _advertised,
    _schedulable,
)
_DRA_CHECKS: tuple[Check, ...] = (_alive, _discovered, _deployed, _upgrade, _validated, _devices, _device_drivers, _schedulable)
"""Checks of a node in DRA mode, in order: GPUCluster manages neither feature discovery nor the device plugin."""
