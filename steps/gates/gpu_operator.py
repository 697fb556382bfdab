"""Whether the GPU Operator serves every GPU: `ready` alone is no proof, it is also said when nothing was found (gpu_stack §0.1)."""

from collections import Counter
from collections.abc import Mapping

from steps.contract.checks import CheckPod
from steps.contract.stages.gpu_operator import (
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
    Mode,
    NodesExpectation,
    NodesObservation,
)
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes, passed
from steps.gates import charts, checks, gpu_operator_control
from steps.gates.gpu_operator_node import judge_node

CONTROL = "gpu_operator/control"
NODES = "gpu_operator/nodes"
FUNCTIONAL = "gpu_operator/functional"


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Chart deployed, one root resource, one NFD that found the GPUs, root reconciled since its change, operands on the nodes."""
    problem = charts.problem(CONTROL, seen.releases, want.releases, seen.root_app, want.root_app) or gpu_operator_control.problem(
        CONTROL, seen, want
    )
    if problem is not None:
        return problem
    root = (seen.gpu_clusters if want.mode is Mode.GPU_CLUSTER else seen.cluster_policies)[0]
    said = f"{root.name} reconciled; operands serve at least {want.least} of {len(want.nodes)} GPU nodes"
    return passed(CONTROL, said, notes=gpu_operator_control.short_operands(seen, want))


# ---- nodes ---------------------------------------------------------------------------------------------------------------------


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Every expected node advertises all its GPUs, healthy, of the right product and driver, and was validated."""
    by_name = {node.name: node for node in seen.nodes}
    usual = _usual_memory(seen)
    rows = [judge_node(name, by_name.get(name), seen, want, usual) for name in want.nodes]
    return of_nodes(NODES, rows, what="all GPUs advertised, healthy and validated")


def _usual_memory(seen: NodesObservation) -> int:
    """GPU memory in MiB that most nodes show; 0 where none shows any."""
    labels = (node.labels.get("nvidia.com/gpu.memory", "") for node in seen.nodes)
    counted = Counter(int(text) for text in labels if text.isdigit())
    return max(counted, key=lambda size: (counted[size], size)) if counted else 0


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """On every node a pod saw all GPUs, under UUIDs that no other node has, and a CUDA kernel ran on each."""
    pods = checks.by_node(seen.pods)
    owners: dict[str, list[str]] = {}
    for name, pod in pods.items():
        for uuid in _uuids(pod):
            owners.setdefault(uuid, []).append(name)
    rows = [_smoke(name, pods.get(name), seen, want, owners) for name in want.nodes]
    return checks.concluded(of_nodes(FUNCTIONAL, rows, what="a CUDA kernel ran on every GPU"))


def _uuids(pod: CheckPod) -> tuple[str, ...]:
    found = pod.report.get("uuids", ())
    return tuple(str(uuid) for uuid in found) if isinstance(found, list) else ()


def _smoke(
    name: str, pod: CheckPod | None, seen: FunctionalObservation, want: FunctionalExpectation, owners: Mapping[str, list[str]]
) -> NodeVerdict:
    expected = want.others.get(name, want.gpus)
    goal = f"{expected} GPUs visible and a CUDA kernel on each"
    if pod is None or not pod.report:
        return checks.silent(name, pod, seen.pods, goal)
    uuids, error = _uuids(pod), str(pod.report.get("error", ""))
    devices, done = pod.report.get("devices", 0), pod.report.get("passed", 0)
    twice = [uuid for uuid in uuids if len(owners[uuid]) > 1]
    if len(set(uuids)) != expected:
        said, kind = f"{len(set(uuids))} GPUs visible {error}".rstrip(), FailureClass.HARDWARE
        step = "nvidia-smi -L and dmesg (Xid, fallen off the bus) on the node"
    elif twice:
        said, kind = (
            f"GPU {twice[0]} is also seen on {', '.join(other for other in owners[twice[0]] if other != name) or 'itself'}",
            FailureClass.INPUT,
        )
        step = "two node names lead to one machine, or a machine was cloned: check the inventory"
    elif not isinstance(devices, int) or devices < expected or done != devices:
        said, kind = f"a CUDA kernel ran on {done} of {devices} devices: {error}".rstrip(": "), FailureClass.RUNTIME
        step = "on NVSwitch machines see nvidia-smi -q, Fabric State; else the driver and the image's CUDA version"
    else:
        return NodeVerdict(node=name, status=Status.PASS, seen=f"{expected} GPUs, CUDA ran on {done} devices")
    return NodeVerdict(node=name, status=Status.FAIL, seen=said, expected=goal, next_step=step, failure_class=kind)
