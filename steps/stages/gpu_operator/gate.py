"""Gates of gpu_operator. The operator's state `ready` alone is no proof: it is also reported when no GPU was found.

See `steps/docs/facts/gpu.md`, GPU Operator.
"""

from collections import Counter
from collections.abc import Mapping

from steps.contract.checks import CheckPod
from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes, passed
from steps.stages.gpu_operator import gate_root
from steps.stages.gpu_operator.contract import (
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
    NodesExpectation,
    NodesObservation,
)
from steps.stages.gpu_operator.gate_gpu_node import judge_node
from steps.stages.shared import gate_charts, gate_checks
from steps.stages.shared.finding import fail, node_verdict

CONTROL = "gpu_operator/control"
NODES = "gpu_operator/nodes"
FUNCTIONAL = "gpu_operator/functional"


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check chart, root resource, NFD and operands: the root is reconciled since its last change, and operands run on GPU nodes."""
    releases = gate_charts.problem(seen.releases, want.releases, seen.root_app, want.root_app)
    if finding := releases or gate_root.problem(seen, want):
        return finding.verdict(CONTROL)
    summary = (
        f"{gate_root.roots(seen, want)[0].name} reconciled; operands serve at least {want.least} of {len(want.nodes)} GPU nodes"
    )
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
        for uuid in gate_checks.uuids(pod):
            owners.setdefault(uuid, []).append(name)
    rows = [_smoke(name, pods.get(name), seen, want, owners) for name in want.nodes]
    return gate_checks.conclude(of_nodes(FUNCTIONAL, rows, what="a CUDA kernel ran on every GPU"))


def _smoke(
    name: str, pod: CheckPod | None, seen: FunctionalObservation, want: FunctionalExpectation, owners: Mapping[str, list[str]]
) -> NodeVerdict:
    expected = want.others.get(name, want.gpus)
    goal = f"{expected} GPUs visible and a CUDA kernel on each"
    if pod is None or not pod.report:
        return gate_checks.silent(pod, seen.pods, goal).of_node(name)
    uuids, error = gate_checks.uuids(pod), str(pod.report.get("error", ""))
    devices, done = pod.report.get("devices", 0), pod.report.get("passed", 0)
    twice = [uuid for uuid in uuids if len(owners[uuid]) > 1]
    finding = None
    if len(set(uuids)) != expected:
        step = "nvidia-smi -L and dmesg (Xid, fallen off the bus) on the node"
        finding = fail(FailureClass.HARDWARE, f"{len(set(uuids))} GPUs visible {error}".rstrip(), goal, step)
    elif twice:
        others = ", ".join(other for other in owners[twice[0]] if other != name) or "itself"
        step = "two node names lead to one machine, or a machine was cloned: check the inventory"
        finding = fail(FailureClass.INPUT, f"GPU {twice[0]} is also seen on {others}", goal, step)
    elif not isinstance(devices, int) or devices < expected or done != devices:
        # with MIG a node has more devices than GPUs, so the number is a lower bound
        problem = f"a CUDA kernel ran on {done} of {devices} devices: {error}".rstrip(": ")
        step = "on NVSwitch machines see nvidia-smi -q, Fabric State; else the driver and the image's CUDA version"
        finding = fail(FailureClass.RUNTIME, problem, goal, step)
    return node_verdict(name, finding, f"{expected} GPUs, CUDA ran on {done} devices")
