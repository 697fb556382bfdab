"""Judges GPU nodes, one pass over the fleet. Checks of a node follow the order in which driver, labels, validator and resources
come up; the first failure wins."""

import functools
import re
from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from steps.contract.node_tests.fleet_facts import FleetFact
from steps.contract.verdict import FailureClass, NodeVerdict
from steps.stages.gpu_operator import gate_pools, gate_validator
from steps.stages.gpu_operator.contract import (
    GPU_LABELS,
    PRODUCT_LABEL,
    AdvertisingMode,
    GpuNode,
    NodesExpectation,
    NodesObservation,
)
from steps.stages.shared import gate_alike
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown

UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
MIG_STATE = "nvidia.com/mig.config.state"
DRIVER_LABEL, CUDA_LABEL = "nvidia.com/cuda.driver-version.full", "nvidia.com/cuda.runtime-version.full"
COMPARED = (FleetFact.DRIVER, FleetFact.CUDA, FleetFact.KERNEL)
"""Facts that the cluster shows of every node; the check `cuda-smoke` reports those that only the GPU itself tells."""
COUNTS_GPUS = re.compile(r"gpu|/mig-|nvidia\.com/[A-Z]{2}\d{3}", re.ASCII)
"""Names by which device plugins count GPUs: `nvidia.com/gpu`, `volcano.sh/vgpu-number`, `nvidia.com/mig-1g.18gb`, and for virtual
machines `nvidia.com/GH100_H100_PCIE`. NICs can have the prefix nvidia.com too."""
MEMORY_SHARE = 0.98
"""Least share of the usual GPU memory; a GPU with less has lost some of it. Firmware versions differ by a few MiB."""


class FleetSurvey(Struct, frozen=True):
    """Facts about all nodes together, found in one pass: whether all validators are ready, odd nodes.

    `usual_memory` maps the product that is expected of a node to the memory of most such GPUs in MiB.
    `values` (node → value) and `comparisons` are in the order of `COMPARED`.
    """

    usual_memory: dict[str, int]
    validated: bool
    values: tuple[dict[str, str], ...]
    comparisons: tuple[gate_alike.Comparison, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each fact that differs with the spec's permission."""
        return tuple(comparison.note for comparison in self.comparisons if comparison.note)


class Look(Struct, frozen=True):
    """Input of each check of one GPU node: its observation, the expectation, and what is known of all nodes."""

    node: GpuNode
    want: NodesExpectation
    fleet: FleetSurvey

    @property
    def gpus(self) -> int:
        """Return the number of GPUs that this node must have."""
        return self.want.others.get(self.node.name, self.want.gpus)


def survey(seen: NodesObservation, want: NodesExpectation) -> FleetSurvey:
    """Return what is known of all nodes together, so that the check of one node does not look at the others again.

    Nodes without the driver that the plan names fail by themselves; they have no say in which driver is the usual one.
    """
    right = [node for node in seen.nodes if _odd_driver(node, want) is None]
    memory: dict[str, Counter[int]] = {}
    for node in seen.nodes:
        if (text := node.labels.get("nvidia.com/gpu.memory", "")).isdigit():
            memory.setdefault(gate_pools.product(want, node.name), Counter())[int(text)] += 1
    fleets = (seen.nodes if fact is FleetFact.KERNEL else right for fact in COMPARED)
    values = tuple(
        {node.name: value for node in nodes if (value := _value(node, fact, want))}
        for fact, nodes in zip(COMPARED, fleets, strict=True)
    )
    comparisons = (gate_alike.compare(fact, shown, want.may_differ) for fact, shown in zip(COMPARED, values, strict=True))
    return FleetSurvey(
        usual_memory={name: max(sizes, key=lambda size: (sizes[size], size)) for name, sizes in memory.items()},
        validated=gate_validator.all_ready(seen, want),
        values=values,
        comparisons=tuple(comparisons),
    )


def judge_node(name: str, node: GpuNode | None, want: NodesExpectation, fleet: FleetSurvey) -> NodeVerdict:
    """Return the verdict on one expected node."""
    if node is None:
        step = "see stage rke2: the agent has not joined, or was deleted"
        return fail(FailureClass.DEPENDENCY, "no such node in the cluster", "a registered node", step).of_node(name)
    if (finding := gate_pools.stranger(want, name)) is not None:
        return finding.of_node(name)
    look = Look(node, gate_pools.of_node(want, name), fleet)
    checks = _DRA_CHECKS if _uses_dra(want) else _CHECKS
    problem = next((finding for check in checks if (finding := check(look)) is not None), None)
    return node_verdict(name, problem, f"{look.gpus} GPUs")


def _uses_dra(want: NodesExpectation) -> bool:
    return want.mode is AdvertisingMode.GPU_CLUSTER


def _value(node: GpuNode, fact: FleetFact, want: NodesExpectation) -> str:
    """Return a node's value of a compared fact; empty if the node does not show it."""
    if fact is FleetFact.KERNEL:
        return node.kernel
    if _uses_dra(want):
        return ", ".join(node.drivers if fact is FleetFact.DRIVER else node.cuda)
    return node.labels.get(DRIVER_LABEL if fact is FleetFact.DRIVER else CUDA_LABEL, "")


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
    if node.paused.get("driver") == "pre-installed" and not look.want.host_driver:
        step = "set accelerator.driver: host for such machines, or remove the host's driver"
        return fail(FailureClass.INPUT, "the host has a driver of its own", "none, since the operator installs it", step)
    if (halted := _halted(look)) is not None:
        return halted
    if not node.deployed or node.labels.get("nvidia.com/gpu.present") != "true":
        seen, expected = "the operator has not marked this node as a GPU node", "labels nvidia.com/gpu.present and gpu.deploy.*"
        return unknown(FailureClass.DEPENDENCY, seen, expected, "read the operator's log")
    return None


def _halted(look: Look) -> Finding | None:
    """Return a finding if labels of the node switch off operands that the plan runs, or pause them."""
    labels = {key: value for key, value in sorted(look.node.paused.items()) if key not in look.want.unused}
    if not labels:
        return None
    shown = ", ".join(f"{key} is {value or 'empty'}" for key, value in labels.items())
    if all(value.startswith("paused") for value in labels.values()):
        step = "an upgrade or MIG change is under way, or was left behind: log of the driver manager or of nvidia-mig-manager"
        return unknown(FailureClass.RUNTIME, f"operands are paused: {shown}", "true", step)
    names = " ".join(f"nvidia.com/gpu.deploy.{key}-" for key, value in labels.items() if not value.startswith("paused"))
    step = f"kubectl label node {look.node.name} {names} (the operator sets them to true again)"
    return fail(FailureClass.INPUT, f"operands are switched off by labels nvidia.com/gpu.deploy.*: {shown}", "true", step)


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
        return None if mine.ready else gate_validator.stuck(mine, look.want)
    if look.fleet.validated:
        return None
    step = "kubectl -n gpu-operator get ds; see why the node is not selected"
    return unknown(FailureClass.DEPENDENCY, "no validator pod on this node", "a ready validator", step)


def _product(look: Look) -> Finding | None:
    product = look.node.labels.get(PRODUCT_LABEL, "")
    if not product:
        expected, step = "written by GPU feature discovery", "log of gpu-feature-discovery"
        return unknown(FailureClass.HEALTH, f"no label {PRODUCT_LABEL}", expected, step)
    if look.want.products and product not in look.want.products:
        step = "correct accelerator.product (or product_label) in the spec, or the machine"
        return fail(FailureClass.INPUT, f"product is {product}", " or ".join(look.want.products), step)
    return None


def _count(look: Look) -> Finding | None:
    labels = look.node.labels
    if look.want.products and labels.get(PRODUCT_LABEL) != look.want.products[0]:
        return None  # sharing changed the labels: they count slices now
    counted, memory = labels.get("nvidia.com/gpu.count", ""), labels.get("nvidia.com/gpu.memory", "")
    if counted != str(look.gpus):
        step = "nvidia-smi -L and dmesg (Xid, fallen off the bus) on the node"
        return fail(FailureClass.HARDWARE, f"feature discovery counts {counted or 'no'} GPUs", str(look.gpus), step)
    if not memory.isdigit():
        return unknown(FailureClass.HEALTH, "no label nvidia.com/gpu.memory", "MiB per GPU", "log of gpu-feature-discovery")
    usual = look.fleet.usual_memory.get(gate_pools.product(look.want, look.node.name), 0)
    if int(memory) < usual * MEMORY_SHARE:
        step = "nvidia-smi -q: remapped rows, ECC, a GPU of another kind"
        return fail(FailureClass.HARDWARE, f"GPU memory is {memory} MiB", f"{usual} MiB as on most nodes", step)
    return None


def _driver(look: Look) -> Finding | None:
    """Check that the driver has the version that the plan names.

    GPUCluster runs no feature discovery whose labels could tell it; DRA devices report it.
    """
    odd = _odd_driver(look.node, look.want)
    if odd is None:
        return None
    step = "restart the driver pod of this node (its DaemonSet updates on delete only)"
    if look.want.host_driver:
        step = "install this driver on the host and reboot it, or correct accelerator.driver_version"
    return fail(FailureClass.COMPARISON, f"driver is {odd or 'not known'}", look.want.driver, step)


def _odd_driver(node: GpuNode, want: NodesExpectation) -> str | None:
    """Return a driver version of a node that does not begin with the planned one, empty if it is unknown; None if all do.

    Versions are compared by their numbers: DRA writes semantic versions without leading zeros.
    """
    if not want.driver:
        return None
    wanted = _numbers(want.driver)
    versions = (node.drivers or ("",)) if _uses_dra(want) else (node.labels.get(DRIVER_LABEL, ""),)
    return next((version for version in versions if _numbers(version)[: len(wanted)] != wanted), None)


@functools.cache
def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in version.split("."))


def _alike(look: Look) -> Finding | None:
    """Check that the node has the driver, CUDA version and kernel of most nodes."""
    name, fleet = look.node.name, look.fleet
    for fact, values, comparison in zip(COMPARED, fleet.values, fleet.comparisons, strict=True):
        if (odd := comparison.findings.get(name)) is not None:
            return odd
        if name not in values and fact not in look.want.may_differ:
            return _untold(fact, look)
    return None


def _untold(fact: FleetFact, look: Look) -> Finding:
    """Return the finding on a node that does not show a compared fact."""
    if fact is FleetFact.KERNEL:
        return gate_alike.missing(fact, "kernel version in status.nodeInfo", "log of its kubelet")
    is_driver = fact is FleetFact.DRIVER
    if _uses_dra(look.want):
        source = f"device attribute {'driverVersion' if is_driver else 'cudaDriverVersion'}"
        return gate_alike.missing(fact, source, "log of nvidia-dra-driver-kubelet-plugin")
    return gate_alike.missing(fact, f"label {DRIVER_LABEL if is_driver else CUDA_LABEL}", "log of gpu-feature-discovery")


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


def _foreign_resources(look: Look) -> Finding | None:
    """Check that the node advertises no GPU resource that the plan does not register: another device plugin would."""
    planned = {key for shape in look.want.shapes for key in shape} | set(look.want.resources)
    odd = {
        key: total for key, total in sorted(look.node.capacity.items()) if total and key not in planned and COUNTS_GPUS.search(key)
    }
    if not odd:
        return None
    shown = ", ".join(f"{key} {total}" for key, total in odd.items())
    expected = ", ".join(sorted(planned)) or "no GPU resource, since GPUs are DRA devices"
    step = "find the device plugin that registers it (kubectl get ds -A -o wide) and remove it"
    return fail(FailureClass.DEPENDENCY, f"advertises {shown}, which this platform does not register", expected, step)


def _mig_settled(look: Look) -> Finding | None:
    state = look.node.labels.get(MIG_STATE, "")
    if state in ("", "success"):
        return None
    step = "log of nvidia-mig-manager on this node: pending can stay for good if a pod keeps a GPU"
    make = fail if state == "failed" else unknown
    return make(FailureClass.RUNTIME, f"{MIG_STATE} is {state}", "success", step)


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
    _alike,
    _mig_settled,
    _advertised,
    _foreign_resources,
    _schedulable,
)
_DRA_CHECKS: tuple[Check, ...] = (
    _alive,
    _discovered,
    _deployed,
    _upgrade,
    _validated,
    _devices,
    _driver,
    _alike,
    _foreign_resources,
    _schedulable,
)
"""Checks of a node in DRA mode, in order: GPUCluster manages neither feature discovery nor the device plugin."""
