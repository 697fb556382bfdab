"""Judges one GPU node, in the order in which its parts come up: the first missing part is the reason."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from steps.contract.verdict import FailureClass, NodeVerdict, Status
from steps.stages.gpu_operator import gate_validator as validator
from steps.stages.gpu_operator.contract import GPU_LABELS, AdvertisingMode, GpuNode, NodesExpectation, NodesObservation

UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
MEMORY_SHARE = 0.98
"""Least share of the usual GPU memory; a GPU with less has lost some of it. Firmware versions differ by a few MiB."""


class Look(Struct, frozen=True):
    """A node with everything that its checks compare."""

    node: GpuNode
    seen: NodesObservation
    want: NodesExpectation
    usual_memory: int

    @property
    def gpus(self) -> int:
        """Number of GPUs that this node must have."""
        return self.want.others.get(self.node.name, self.want.gpus)

    def bad(self, seen: str, expected: str, next_step: str, kind: FailureClass, *, status: Status = Status.FAIL) -> NodeVerdict:
        """Return a verdict that is no pass."""
        name = self.node.name
        return NodeVerdict(node=name, status=status, seen=seen, expected=expected, next_step=next_step, failure_class=kind)

    def wait(self, seen: str, expected: str, next_step: str, kind: FailureClass) -> NodeVerdict:
        """Return an inconclusive verdict: the wanted state may still come."""
        return self.bad(seen, expected, next_step, kind, status=Status.INCONCLUSIVE)


def judge_node(name: str, node: GpuNode | None, seen: NodesObservation, want: NodesExpectation, usual_memory: int) -> NodeVerdict:
    """Return the verdict on one expected node. `usual_memory` is the GPU memory that most nodes show, in MiB."""
    if node is None:
        return NodeVerdict(
            node=name,
            status=Status.FAIL,
            seen="no such node in the cluster",
            expected="a registered node",
            next_step="see stage rke2: the agent has not joined, or was deleted",
            failure_class=FailureClass.DEPENDENCY,
        )
    look = Look(node, seen, want, usual_memory)
    checks = _DRA_CHECKS if want.mode is AdvertisingMode.GPU_CLUSTER else _CHECKS
    problem = next((verdict for check in checks if (verdict := check(look)) is not None), None)
    return problem or NodeVerdict(node=name, status=Status.PASS, seen=f"{look.gpus} GPUs")


def _alive(look: Look) -> NodeVerdict | None:
    if look.node.ready:
        return None
    step = "the container toolkit restarts RKE2 once (wait); then journalctl -u rke2-agent"
    return look.wait("node is not Ready", "Ready", step, FailureClass.HEALTH)


def _discovered(look: Look) -> NodeVerdict | None:
    if any(look.node.labels.get(label) == "true" for label in GPU_LABELS):
        return None
    return look.wait(
        "NFD found no NVIDIA device",
        "label feature.node.kubernetes.io/pci-10de.present",
        "lspci -d 10de: on the node, then the NFD worker's log",
        FailureClass.HARDWARE,
    )


def _deployed(look: Look) -> NodeVerdict | None:
    node = look.node
    # this label, which a person sets, disables all operands on the node
    if node.paused.get("operands") == "false":
        return look.bad(
            "operands are disabled by label nvidia.com/gpu.deploy.operands=false",
            "no such label",
            f"kubectl label node {node.name} nvidia.com/gpu.deploy.operands-",
            FailureClass.INPUT,
        )
    # the operator found a driver on the host and keeps its driver pod away
    if node.paused.get("driver") == "pre-installed":
        return look.bad(
            "the host has a driver of its own",
            "none, since the operator installs it",
            "set accelerator.driver: host for such machines, or remove the host's driver",
            FailureClass.INPUT,
        )
    halted = next(((key, value) for key, value in node.paused.items() if value.startswith("paused")), None)
    if halted is not None:
        return look.wait(
            f"{halted[0]} is {halted[1]}",
            "true",
            "an upgrade or MIG change is under way, or was left behind: log of the driver manager",
            FailureClass.RUNTIME,
        )
    if not node.deployed or node.labels.get("nvidia.com/gpu.present") != "true":
        return look.wait(
            "the operator has not marked this node as a GPU node",
            "labels nvidia.com/gpu.present and gpu.deploy.*",
            "read the operator's log",
            FailureClass.DEPENDENCY,
        )
    return None


def _upgrade(look: Look) -> NodeVerdict | None:
    state = look.node.labels.get(UPGRADE_STATE, "")
    if state in ("", "upgrade-done"):
        return None
    if state == "upgrade-failed":
        return look.bad(
            "the driver upgrade failed", "upgrade-done", "log of the operator and of nvidia-driver-daemonset", FailureClass.RUNTIME
        )
    return look.wait(
        f"driver upgrade is at {state}", "upgrade-done", "see which pods keep the node from being drained", FailureClass.RUNTIME
    )


def _validated(look: Look) -> NodeVerdict | None:
    mine = look.node.validator
    if mine is not None:
        return None if mine.ready else validator.stuck(mine).of_node(look.node.name)
    if validator.all_ready(look.seen, look.want):
        return None
    return look.wait(
        "no validator pod on this node",
        "a ready validator",
        "kubectl -n gpu-operator get ds; see why the node is not selected",
        FailureClass.DEPENDENCY,
    )


def _product(look: Look) -> NodeVerdict | None:
    product = look.node.labels.get("nvidia.com/gpu.product", "")
    if not product:
        return look.wait(
            "no label nvidia.com/gpu.product",
            "written by GPU feature discovery",
            "log of gpu-feature-discovery",
            FailureClass.HEALTH,
        )
    if look.want.products and product not in look.want.products:
        return look.bad(
            f"product is {product}",
            " or ".join(look.want.products),
            "correct accelerator.product (or product_label) in the spec, or the machine",
            FailureClass.INPUT,
        )
    return None


def _count(look: Look) -> NodeVerdict | None:
    labels = look.node.labels
    if look.want.products and labels.get("nvidia.com/gpu.product") != look.want.products[0]:
        return None  # sharing changed the labels: they count slices now
    counted, memory = labels.get("nvidia.com/gpu.count", ""), labels.get("nvidia.com/gpu.memory", "")
    if counted != str(look.gpus):
        return look.bad(
            f"feature discovery counts {counted or 'no'} GPUs",
            str(look.gpus),
            "nvidia-smi -L and dmesg (Xid, fallen off the bus) on the node",
            FailureClass.HARDWARE,
        )
    if not memory.isdigit():
        return look.wait("no label nvidia.com/gpu.memory", "MiB per GPU", "log of gpu-feature-discovery", FailureClass.HEALTH)
    if int(memory) < look.usual_memory * MEMORY_SHARE:
        return look.bad(
            f"GPU memory is {memory} MiB",
            f"{look.usual_memory} MiB as on most nodes",
            "nvidia-smi -q: remapped rows, ECC, a GPU of another kind",
            FailureClass.HARDWARE,
        )
    return None


def _driver(look: Look) -> NodeVerdict | None:
    return _wanted_driver(look, [look.node.labels.get("nvidia.com/cuda.driver-version.full", "")])


def _device_drivers(look: Look) -> NodeVerdict | None:
    """Check the driver versions that the DRA devices report: GPUCluster runs no feature discovery whose labels could tell them."""
    return _wanted_driver(look, look.node.drivers or [""])


def _wanted_driver(look: Look, found: Iterable[str]) -> NodeVerdict | None:
    """Return a failed verdict if a driver version does not begin with the wanted one.

    Versions are compared by their numbers: DRA writes semantic versions without leading zeros.
    """
    wanted = _numbers(look.want.driver)
    odd = next((version for version in found if _numbers(version)[: len(wanted)] != wanted), None)
    if not look.want.driver or odd is None:
        return None
    return look.bad(
        f"driver is {odd or 'not known'}",
        look.want.driver,
        "restart the driver pod of this node (its DaemonSet updates on delete only), or update the host's driver",
        FailureClass.COMPARISON,
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in version.split("."))


def _advertised(look: Look) -> NodeVerdict | None:
    shapes = [{key: count * look.gpus for key, count in shape.items()} for shape in look.want.shapes]
    if not shapes or any(_holds(look.node, shape) for shape in shapes):
        return None
    wanted, node = shapes[0], look.node
    for key, count in wanted.items():
        has, free = node.capacity.get(key, 0), node.allocatable.get(key, 0)
        # capacity counts all devices, allocatable only the healthy ones
        if has == count and free < has:
            return look.bad(
                f"{key}: {free} of {has} allocatable",
                f"all {count}: fewer means that the device plugin found unhealthy devices",
                "dmesg | grep -i xid on the node",
                FailureClass.HARDWARE,
            )
    shown = ", ".join(f"{key} {count}" for key, count in sorted(node.capacity.items())) or "no GPU resource"
    goal = ", ".join(f"{key} {count}" for key, count in wanted.items())
    if not any(node.capacity.get(key, 0) for key in wanted):
        return look.wait(f"advertises {shown}", goal, "log of nvidia-device-plugin-daemonset on this node", FailureClass.HEALTH)
    return look.bad(f"advertises {shown}", goal, "nvidia-smi -L on the node; MIG or sharing left on?", FailureClass.HARDWARE)


def _holds(node: GpuNode, shape: dict[str, int]) -> bool:
    return all(node.capacity.get(key, 0) == count == node.allocatable.get(key, 0) for key, count in shape.items())


def _devices(look: Look) -> NodeVerdict | None:
    if look.node.devices == look.gpus:
        return None
    goal = f"{look.gpus} devices of gpu.nvidia.com"
    if look.node.devices <= 0:
        return look.wait("no ResourceSlice with GPUs", goal, "log of nvidia-dra-driver-kubelet-plugin", FailureClass.HEALTH)
    return look.bad(
        f"{look.node.devices} DRA devices", goal, "nvidia-smi -L and dmesg on the node; MIG left on?", FailureClass.HARDWARE
    )


def _schedulable(look: Look) -> NodeVerdict | None:
    if not look.node.unschedulable:
        return None
    return look.wait(
        "node is cordoned", "schedulable", f"kubectl uncordon {look.node.name}, once you know who cordoned it", FailureClass.HEALTH
    )


Check = Callable[[Look], NodeVerdict | None]
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
"""Checks in DRA mode: GPUCluster manages neither feature discovery nor the device plugin."""
