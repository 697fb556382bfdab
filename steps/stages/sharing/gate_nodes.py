"""Compares the resources that one node advertises with its physical GPUs: labels that report success are never enough.

See `steps/docs/facts/gpu.md`, Sharing: MIG can report success for a profile that changed nothing.
"""

from collections.abc import Iterator
from itertools import chain

from steps.contract.verdict import FailureClass, NodeVerdict, by_cause
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown
from steps.stages.sharing.contract import NodesExpectation, SharedNode, SharingMode

GPU = "nvidia.com/gpu"
CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
WHOLE = "all-disabled"
"""Value of label CONFIG with which the MIG manager leaves GPUs whole; the GPU Operator's default (mig-parted's configuration)."""
PLUGIN_CONFIG = "nvidia.com/device-plugin.config"


def judge(name: str, node: SharedNode | None, want: NodesExpectation) -> NodeVerdict:
    """Return the first problem of a node as its verdict, or a pass."""
    if node is None:
        return unknown(FailureClass.HEALTH, "not registered", "a Node", f"see kubelet on {name}").of_node(name)
    gpus = want.others.get(name, want.gpus)
    mode = _devices(node, gpus, want) if want.mode is SharingMode.DRA else _advertised(node, gpus, want)
    findings = chain(_unplanned_mig(node, want), mode)
    return node_verdict(name, next(findings, None), _resources(node) or f"{node.devices} devices")


def _advertised(node: SharedNode, gpus: int, want: NodesExpectation) -> Iterator[Finding]:
    yield from _switches(node, want)
    yield from _mig_state(node, want)
    units = gpus * want.units
    capacity = node.capacity.get(want.resource, 0)
    if capacity != units:
        yield _wrong_count(node, gpus, units, want)
    allocatable = node.allocatable.get(want.resource, 0)
    if allocatable < units:
        step = f"read dcgm and the kernel log of {node.name} for XID errors"
        seen = f"{allocatable} of {units} {want.resource} are allocatable"
        yield fail(FailureClass.HARDWARE, seen, f"all {units}: the plugin holds a device for unhealthy", step)
    # renamed shares leave `nvidia.com/gpu` with value 0, which is right
    others = [key for key, count in node.allocatable.items() if count and key != want.resource]
    if others:
        step = "see which device plugin or MIG geometry is left over"
        yield fail(FailureClass.COMPARISON, f"also advertises {others[0]}", f"{want.resource} alone", step)
    yield from _labels(node, want)


def _switches(node: SharedNode, want: NodesExpectation) -> Iterator[Finding]:
    """Yield a problem if a node lacks the label that turns sharing on: without it the plugin keeps its default configuration."""
    for key in (PLUGIN_CONFIG, CONFIG):
        wanted, seen = want.labels.get(key), node.labels.get(key)
        if wanted and seen != wanted:
            step = f"find who changes the label of {node.name}, and apply the stage again"
            yield fail(FailureClass.COMPARISON, f"label {key} is {seen or 'absent'}", wanted, step)


def _unplanned_mig(node: SharedNode, want: NodesExpectation) -> Iterator[Finding]:
    """Yield a problem if MIG is asked for, or being changed, on a node whose GPUs the plan leaves whole.

    Until the MIG manager has done it, the node advertises whole GPUs as before.
    """
    if want.mode is SharingMode.MIG:
        return
    config, state = node.labels.get(CONFIG, ""), node.labels.get(STATE, "")
    shown = f"{CONFIG} is {config or 'absent'}, {STATE} is {state or 'absent'}"
    if config not in ("", WHOLE):
        step = f"find who set the label of {node.name}, and set it to {WHOLE}: its GPUs are split as soon as no pod holds them"
        yield fail(FailureClass.COMPARISON, shown, f"{WHOLE}, or no label", step)
    elif state == "failed":
        yield fail(FailureClass.RUNTIME, shown, "success", f"read the log of nvidia-mig-manager on {node.name}")
    elif state != "success" and (state or config):
        step = f"read the log of nvidia-mig-manager on {node.name}: pods that hold a GPU keep it pending"
        yield unknown(FailureClass.RUNTIME, shown, "success", step)


def _mig_state(node: SharedNode, want: NodesExpectation) -> Iterator[Finding]:
    """Yield a problem unless the MIG manager reports success.

    `pending` may be terminal: two error paths of the MIG manager never set `failed` (NVIDIA/mig-parted
    pkg/mig/reconfigure/reconfigure.go), so only the gate's deadline ends it.
    """
    state = node.labels.get(STATE, "")
    if want.mode is not SharingMode.MIG or state == "success":
        return
    cause = next(iter(by_cause(node.mig_errors)), None)
    why = f": {cause.cause}{f' (GPU {cause.device})' if cause.device else ''}" if cause else ""
    log = f"read the log of nvidia-mig-manager on {node.name}"
    step = cause.next_step if cause and cause.next_step else log
    if state == "failed":
        # a failed state alone does not tell a wrong profile from a GPU that could not be reset
        failure_class = cause.failure_class if cause else FailureClass.RUNTIME
        seen = f"MIG configuration {want.mig} failed{why}"
        if cause is None:
            step = f"{log}: a client of the host that holds the GPU keeps it from its reset, or the product has no such profile"
        yield fail(failure_class, seen, "mig.config.state success", step)
    if cause is None:
        step = f"{log}: pods that still hold a GPU keep it pending, and so do errors on the way"
    failure_class = cause.failure_class if cause else FailureClass.HEALTH
    yield unknown(failure_class, f"MIG state is {state or 'not told'}{why}", "success", step)


def _wrong_count(node: SharedNode, gpus: int, units: int, want: NodesExpectation) -> Finding:
    """Return the finding on a wrong number of units: no sharing at all, a false success of MIG, or another number of GPUs."""
    seen = f"advertises {_resources(node) or 'no GPU'}"
    expected = f"{want.resource}: {units} ({gpus} GPUs × {want.units})"
    # a static MIG configuration with a device filter for another product succeeds without any change
    if want.mode is SharingMode.MIG:
        step = f"nvidia-smi mig -lgi on {node.name}: the profile may not apply to this product"
        return fail(FailureClass.INPUT, f"MIG state is success, and the node {seen}", expected, step)
    if want.mode is not SharingMode.NONE and node.capacity.get(GPU, 0) == gpus:
        step = "see config-manager in the device plugin's pod there: it reads the label, or the default where there is none"
        return fail(FailureClass.COMPARISON, f"{seen}: whole GPUs, sharing is not in effect", expected, step)
    if want.mode is SharingMode.NONE and node.capacity.get(GPU, 0) > gpus:
        step = f"remove the sharing configuration from release gpu-operator, and the label {PLUGIN_CONFIG} from {node.name}"
        return fail(FailureClass.COMPARISON, f"{seen}: more than it has, so GPUs are shared", expected, step)
    step = f"nvidia-smi -L on {node.name}, and the device plugin's log there"
    return fail(FailureClass.HARDWARE, seen, expected, step)


def _labels(node: SharedNode, want: NodesExpectation) -> Iterator[Finding]:
    for key, wanted in want.labels.items():
        seen = node.labels.get(key)
        step = f"see gpu-feature-discovery on {node.name}: schedulers and quotas select by its labels"
        if seen is None:
            yield unknown(FailureClass.HEALTH, f"no label {key}", wanted, step)
        elif seen != wanted:
            yield fail(FailureClass.COMPARISON, f"label {key} is {seen}", wanted, step)


def _devices(node: SharedNode, gpus: int, want: NodesExpectation) -> Iterator[Finding]:
    plugin = [key for key, count in node.allocatable.items() if count]
    if plugin:
        step = "disable the device plugin there: two owners hand out the same GPU"
        seen = f"advertises {_resources(node)} beside its DRA devices"
        yield fail(FailureClass.COMPARISON, seen, f"{plugin[0]} absent or 0", step)
    if node.devices is None:
        step = f"see the DRA kubelet plugin on {node.name}"
        seen = "no complete ResourceSlice pool of gpu.nvidia.com"
        yield unknown(FailureClass.HEALTH, seen, f"{gpus} devices", step)
    elif node.devices != gpus:
        step = f"nvidia-smi -L on {node.name}, and the kubelet plugin's log there"
        yield fail(FailureClass.HARDWARE, f"{node.devices} DRA devices", f"{gpus}", step)
    if node.tainted is None:
        step = "see the role of the check: it reads resourceslices"
        yield unknown(FailureClass.PERMISSION, "taints of DRA devices were not read", "devices without taints", step)
    elif node.tainted:
        seen = f"{len(node.tainted)} DRA devices are tainted, first {node.tainted[0]}"
        step = f"see the DRA kubelet plugin and the kernel log of {node.name} for XID errors: nobody gets a tainted device"
        yield fail(FailureClass.HARDWARE, seen, "devices without taints", step)
    old = [version for version in node.drivers if _branch(version) < want.least_driver]
    if old or (node.devices and not node.drivers):
        seen = f"driver {old[0]}" if old else "no driver version in its devices"
        yield fail(FailureClass.DEPENDENCY, seen, f"{want.least_driver} or newer", "upgrade the driver")
    yield from _labels(node, want)


def _branch(version: str) -> int:
    """Return the branch of a driver version (580 of `580.126.20`); 0 if the version does not begin with a number."""
    number = version.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _resources(node: SharedNode) -> str:
    return ", ".join(f"{key}: {count}" for key, count in node.capacity.items())
