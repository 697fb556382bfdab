"""Gates of gpu_operator. The operator's state `ready` alone is no proof: it is also reported when no GPU was found.

See `steps/docs/facts/gpu.md`, GPU Operator.
"""

from collections import Counter
from collections.abc import Mapping

from steps.contract.checks import CheckPod
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes, passed
from steps.stages.gpu_operator import gate_root
from steps.stages.gpu_operator.contract import (
    AdvertisingMode,
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
    NodesExpectation,
    NodesObservation,
)
from steps.stages.gpu_operator.gate_gpu_node import judge_node
from steps.stages.shared import gate_charts, gate_checks

CONTROL = "gpu_operator/control"
NODES = "gpu_operator/nodes"
FUNCTIONAL = "gpu_operator/functional"


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check chart, root resource, NFD, and operands: the root is reconciled since its change, and operands run on the nodes."""
    problem = gate_charts.problem(CONTROL, seen.releases, want.releases, seen.root_app, want.root_app) or gate_root.problem(
        CONTROL, seen, want
    )
    if problem is not None:
        return problem
    root = (seen.gpu_clusters if want.mode is AdvertisingMode.GPU_CLUSTER else seen.cluster_policies)[0]
    summary = f"{root.name} reconciled; operands serve at least {want.least} of {len(want.nodes)} GPU nodes"
    return passed(CONTROL, summary, notes=gate_root.short_operands(seen, want))


# ---- nodes ---------------------------------------------------------------------------------------------------------------------


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Check that every expected node advertises all its healthy GPUs, with the right product and driver, and was validated."""
    by_name = {node.name: node for node in seen.nodes}
    usual = _usual_memory(seen)
    rows = [judge_node(name, by_name.get(name), seen, want, usual) for name in want.nodes]
    return of_nodes(NODES, rows, what="all GPUs advertised, healthy and validated")


def _usual_memory(seen: NodesObservation) -> int:
    """Return the GPU memory in MiB that most nodes show; 0 if no node shows any."""
    labels = (node.labels.get("nvidia.com/gpu.memory", "") for node in seen.nodes)
    counted = Counter(int(text) for text in labels if text.isdigit())
    return max(counted, key=lambda size: (counted[size], size)) if counted else 0


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that on every node a pod saw all GPUs, under UUIDs that no other node has, and ran a CUDA kernel on each."""
    pods = gate_checks.by_node(seen.pods)
    owners: dict[str, list[str]] = {}
    for name, pod in pods.items():
        for uuid in _uuids(pod):
            owners.setdefault(uuid, []).append(name)
    rows = [_smoke(name, pods.get(name), seen, want, owners) for name in want.nodes]
    return gate_checks.conclude(of_nodes(FUNCTIONAL, rows, what="a CUDA kernel ran on every GPU"))


def _uuids(pod: CheckPod) -> tuple[str, ...]:
    uuids = pod.report.get("uuids", ())
    return tuple(str(uuid) for uuid in uuids) if isinstance(uuids, list) else ()


def _smoke(
    name: str, pod: CheckPod | None, seen: FunctionalObservation, want: FunctionalExpectation, owners: Mapping[str, list[str]]
) -> NodeVerdict:
    expected = want.others.get(name, want.gpus)
    goal = f"{expected} GPUs visible and a CUDA kernel on each"
    if pod is None or not pod.report:
        return gate_checks.silent(name, pod, seen.pods, goal)
    uuids, error = _uuids(pod), str(pod.report.get("error", ""))
    devices, done = pod.report.get("devices", 0), pod.report.get("passed", 0)
    twice = [uuid for uuid in uuids if len(owners[uuid]) > 1]
    if len(set(uuids)) != expected:
        problem, kind = f"{len(set(uuids))} GPUs visible {error}".rstrip(), FailureClass.HARDWARE
        step = "nvidia-smi -L and dmesg (Xid, fallen off the bus) on the node"
    elif twice:
        problem, kind = (
            f"GPU {twice[0]} is also seen on {', '.join(other for other in owners[twice[0]] if other != name) or 'itself'}",
            FailureClass.INPUT,
        )
        step = "two node names lead to one machine, or a machine was cloned: check the inventory"
    elif not isinstance(devices, int) or devices < expected or done != devices:
        # with MIG a node has more devices than GPUs, so the number is a lower bound
        problem, kind = f"a CUDA kernel ran on {done} of {devices} devices: {error}".rstrip(": "), FailureClass.RUNTIME
        step = "on NVSwitch machines see nvidia-smi -q, Fabric State; else the driver and the image's CUDA version"
    else:
        return NodeVerdict(node=name, status=Status.PASS, seen=f"{expected} GPUs, CUDA ran on {done} devices")
    return NodeVerdict(node=name, status=Status.FAIL, seen=problem, expected=goal, next_step=step, failure_class=kind)
