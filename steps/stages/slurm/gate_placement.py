"""Judges who shares nodes with Slurm: one revision and planned image of slurmd, no other GPU pods, tolerations of the lock."""

from collections.abc import Mapping

from steps.contract.node_taints import SUNK_LOCK
from steps.contract.verdict import FailureClass, Verdict, of_nodes
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown
from steps.stages.slurm.contract import ForeignPod, PlacementExpectation, PlacementObservation, SlurmdRevision


def judge(gate: str, seen: PlacementObservation, want: PlacementExpectation) -> Verdict:
    """Return the verdict on every expected node, and then on the workloads that the lock would evict."""
    slurmd = {pod.node: pod for pod in seen.slurmd}
    foreign: dict[str, list[ForeignPod]] = {}
    for pod in seen.foreign:
        foreign.setdefault(pod.node, []).append(pod)
    revisions: dict[str, set[str]] = {}
    for entry in seen.slurmd:
        revisions.setdefault(entry.nodeset, set()).add(entry.revision)
    rows = [
        node_verdict(
            node,
            _slurmd(slurmd.get(node), revisions, want) or _foreign(foreign.get(node, [])),
            "slurmd alone has GPUs here",
        )
        for node in want.nodes
    ]
    verdict = of_nodes(gate, rows, what="slurmd of the plan, and no other pod with GPUs")
    finding = _lock(seen, want) if verdict.is_pass else None
    return finding.verdict(gate) if finding else verdict


def _slurmd(pod: SlurmdRevision | None, revisions: Mapping[str, set[str]], want: PlacementExpectation) -> Finding | None:
    if pod is None:
        step = "see gate slurm/nodes"
        return unknown(FailureClass.HEALTH, "no pod runs slurmd here", "one slurmd pod", step)
    if want.images and pod.image not in want.images:
        step = "delete the pod, so that the operator makes one of its present template"
        return fail(FailureClass.COMPARISON, f"slurmd runs image {pod.image or 'unknown'}", " or ".join(want.images), step)
    known = sorted(revisions[pod.nodeset])
    if len(known) > 1:
        seen = f"slurmd pods of NodeSet {pod.nodeset} have revisions {', '.join(name or 'none' for name in known)}"
        step = "wait for the rolling update; jobs hold pods of the old revision"
        return unknown(FailureClass.COMPARISON, f"{seen}, this one {pod.revision or 'none'}", "one revision", step)
    return None


def _foreign(pods: list[ForeignPod]) -> Finding | None:
    if not pods:
        return None
    first = min(pods, key=lambda pod: pod.name)
    gpus = f"{first.gpus} GPUs" if first.gpus else "the GPUs by its runtime class"
    seen = f"pod {first.name} has {gpus}, of a node that Slurm owns" + (f", and {len(pods) - 1} more" if pods[1:] else "")
    step = "delete it, and keep pods of the default scheduler away from these nodes (taint, quota), or run it through Slurm"
    return fail(FailureClass.INPUT, seen, "GPUs for slurmd alone", step)


def _lock(seen: PlacementObservation, want: PlacementExpectation) -> Finding | None:
    if not want.lock:
        return None
    if not seen.workloads:
        step = "see that the account may list pods of all namespaces"
        return unknown(
            FailureClass.PERMISSION, "no pod of any DaemonSet is seen on Slurm's nodes", "at least that of the network", step
        )
    staying = [workload for workload in seen.workloads if workload.name not in want.may_leave]
    # pods of other kinds start anew on nodes that Slurm does not have, where there are any
    staying = [workload for workload in staying if workload.kind == "DaemonSet" or not want.elsewhere]
    evicted = [f"{workload.kind} {workload.name}" for workload in staying if not workload.tolerates]
    if not evicted:
        return None
    more = f", and {len(evicted) - 3} more" if len(evicted) > 3 else ""
    step = f"add the toleration {{key: {SUNK_LOCK}, operator: Exists, effect: NoExecute}} to their pods"
    text = f"the lock of SUNK evicts pods of {', '.join(evicted[:3])}{more} from Slurm's nodes once a job runs"
    return fail(FailureClass.INPUT, text, f"a toleration of {SUNK_LOCK}", step)
