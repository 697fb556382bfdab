"""Gates of slurm: the operator has rolled out, Slurm has every node with all of its GPUs, and srun reaches them (gpu_stack §7)."""

from collections.abc import Iterable, Mapping

from steps.contract.crds import ChartsExpectation, ChartsObservation
from steps.contract.stages.slurm import (
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
    NodeSet,
    NodesExpectation,
    NodesObservation,
    SlurmPod,
)
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, inconclusive, of_nodes, passed
from steps.gates import charts as releases
from steps.gates import crds, slurm_srun, slurm_states
from steps.gates.causes import RUNTIME_REASONS
from steps.gates.finding import Finding, fail, unknown

CHARTS, CONTROL = "slurm/charts", "slurm/control"
NODES, FUNCTIONAL = "slurm/nodes", "slurm/functional"


def charts(seen: ChartsObservation, want: ChartsExpectation) -> Verdict:
    """The operator is deployed and its kinds are served, so that the chart of the cluster itself can be installed."""
    return crds.with_charts(CHARTS, seen, want)


# ---- control -------------------------------------------------------------------------------------------------------------------


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Charts deployed, parts there with ready workloads, NodeSets rolled out, and Slurm can use all nodes but the spare ones."""
    return (
        releases.problem(CONTROL, seen.releases, want.releases, seen.root_app, want.root_app)
        or _parts(seen, want)
        or _nodesets(seen, want)
        or passed(CONTROL, _summary(seen))
    )


def _summary(seen: ControlObservation) -> str:
    total = sum(one.desired for one in seen.nodesets)
    usable = sum(one.idle + one.allocated for one in seen.nodesets)
    names = ", ".join(workload.name for workload in seen.workloads)
    return f"{usable} of {total} Slurm nodes idle or allocated; {names or 'charts'} ready"


def _parts(seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    if want.parts and not seen.served:
        return inconclusive(
            CONTROL,
            seen="slinky.slurm.net/v1beta1 is not served",
            expected="Slinky's CRDs",
            next_step="check the release slurm-operator-crds",
            failure_class=FailureClass.DEPENDENCY,
        )
    kinds = {part.kind for part in seen.parts}
    missing = [kind for kind in want.parts if kind not in kinds]
    if missing:
        return inconclusive(
            CONTROL,
            seen=f"no {', '.join(missing)} in the cluster",
            expected=", ".join(want.parts),
            next_step="check the values of the release slurm",
            failure_class=FailureClass.APPLY,
        )
    bad = next((f"{part.kind} {part.name} {part.bad[0]}" for part in seen.parts if part.bad), "")
    if bad:
        return failed(
            CONTROL, FailureClass.HEALTH, seen=bad, expected="no condition that is not True", next_step="read the operator's log"
        )
    return _workloads(seen, want)


def _workloads(seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    """The operator sets no condition on its parts, so the workloads that it made of them must be there and ready."""
    unready = next((one for one in seen.workloads if not one.settled()), None)
    if unready is None and len(seen.workloads) >= want.workloads:
        return None
    said = (
        f"{unready.kind} {unready.name} has {unready.ready} of {unready.desired} pods ready"
        if unready
        else f"{len(seen.workloads)} of {want.workloads} workloads of Slurm's controller, REST API and login exist"
    )
    return inconclusive(
        CONTROL,
        seen=said,
        expected="all ready",
        next_step="look at their pods: slurmctld needs its volume, slurmrestd and login need slurmctld",
        failure_class=FailureClass.HEALTH,
    )


def _nodesets(seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    if not want.nodes_desired:
        return None
    desired = sum(one.desired for one in seen.nodesets)
    if not want.nodes_desired - want.spare <= desired <= want.nodes_desired:
        names = ", ".join(f"{one.name} {one.desired}" for one in seen.nodesets) or "no NodeSet"
        return inconclusive(
            CONTROL,
            seen=f"NodeSets want {desired} pods ({names})",
            expected=f"{want.nodes_desired}" + (f", at least {want.nodes_desired - want.spare}" if want.spare else ""),
            next_step="compare the NodeSets' node selectors with the nodes' label bringup/group",
            failure_class=FailureClass.INPUT,
        )
    problem = next((found for one in seen.nodesets if (found := _rollout(one))), None)
    return _short(seen, want, problem)


def _rollout(one: NodeSet) -> str:
    """Why a NodeSet is not where it should be; empty when it is."""
    if one.observed != one.generation:
        return f"{one.name}: status is of generation {one.observed}, spec of {one.generation}"
    if one.updated < one.desired or one.ready < one.desired:
        return f"{one.name}: {one.updated} of {one.desired} pods updated, {one.ready} ready"
    if one.down or one.drain or one.idle + one.allocated < one.desired:
        usable = max(one.idle + one.allocated - one.drain, 0)
        return f"{one.name}: {usable} of {one.desired} Slurm nodes usable, {one.down} down, {one.drain} drained"
    return ""


def _short(seen: ControlObservation, want: ControlExpectation, problem: str | None) -> Verdict | None:
    """A NodeSet that is behind its spec never passes; nodes that are not usable do within the spare ones.

    A drained node that is idle counts as both in the operator's status (`slurmDrain` is a flag), so drained ones are taken off.
    """
    stale = any(one.observed != one.generation for one in seen.nodesets)
    usable = sum(max(one.idle + one.allocated - one.drain, 0) for one in seen.nodesets)
    least = min([usable, *(sum(getattr(one, field) for one in seen.nodesets) for field in ("updated", "ready"))])
    if problem is None or (not stale and least >= want.nodes_desired - want.spare):
        return None
    settled = not stale and all(one.ready >= one.desired and (one.down or one.drain) for one in seen.nodesets if _rollout(one))
    first = next((pod for pod in seen.troubled if pod.reason or pod.trouble), None)
    said = f"{problem}{f'; {_pod_said(first)}' if first else ''}"
    expected = f"all of {want.nodes_desired} updated, ready and usable" + (f" but {want.spare}" if want.spare else "")
    if settled:
        return failed(CONTROL, _class_of(seen.troubled), seen=said, expected=expected, next_step=_next_step(first))
    return inconclusive(CONTROL, seen=said, expected=expected, next_step=_next_step(first), failure_class=FailureClass.HEALTH)


def _class_of(troubled: Iterable[SlurmPod]) -> FailureClass:
    """Nodes with less hardware than configured are hardware's fault; any other drained or down node is health."""
    lower = any("lower than configured" in pod.reason for pod in troubled)
    return FailureClass.HARDWARE if lower else FailureClass.HEALTH


def _pod_said(pod: SlurmPod) -> str:
    why = pod.reason or (f"{pod.trouble.reason} {pod.trouble.message}".strip() if pod.trouble else pod.phase)
    return f"{pod.name} {'+'.join(pod.states)}: {why}" if pod.states else f"{pod.name}: {why}"


def _next_step(pod: SlurmPod | None) -> str:
    if pod is None:
        return "look at the NodeSets' pods and events"
    if pod.states:
        return f"remove the cause on {pod.node or pod.name}, then scontrol update nodename={pod.name} state=resume"
    return f"look at pod {pod.pod} on {pod.node or 'no node'}"


# ---- nodes ---------------------------------------------------------------------------------------------------------------------


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Each expected node runs slurmd, Slurm can use it, and promises as many GPUs as Kubernetes has: the same hardware."""
    by_node = {pod.node: pod for pod in seen.pods if pod.node}
    waiting = next((pod for pod in seen.pods if not pod.node), None)
    sets = {one.name: one for one in seen.nodesets}
    rows = [_node(name, by_node.get(name), waiting, sets, seen, want) for name in want.nodes]
    return of_nodes(NODES, rows, what=f"usable by Slurm with {want.gpus} GPUs" if want.gpus else "usable by Slurm")


def _node(
    name: str,
    pod: SlurmPod | None,
    waiting: SlurmPod | None,
    sets: Mapping[str, NodeSet],
    seen: NodesObservation,
    want: NodesExpectation,
) -> NodeVerdict:
    finding = _running(pod, waiting) or _registered(pod, want) or _promise(name, pod, sets, seen, want)
    return finding.of_node(name) if finding else NodeVerdict(node=name, status=Status.PASS, seen=_usable(pod))


def _usable(pod: SlurmPod | None) -> str:
    return f"Slurm node {pod.name} {'+'.join(pod.states)}" if pod else ""


def _running(pod: SlurmPod | None, waiting: SlurmPod | None) -> Finding | None:
    if pod is None:
        said = f"; {_pod_said(waiting)}" if waiting else ""
        return unknown(
            FailureClass.HEALTH,
            f"no pod runs slurmd here{said}",
            "one slurmd pod",
            "check the NodeSet's node selector and tolerations, and free GPUs on the node",
        )
    if pod.ready:
        return None
    why = pod.trouble
    said = f"pod {pod.pod} is {pod.phase} and not ready" + (f": {why.reason} {why.message}".rstrip() if why else "")
    broken = why is not None and why.reason in RUNTIME_REASONS
    make = fail if broken else unknown
    return make(FailureClass.RUNTIME if broken else FailureClass.HEALTH, said, "slurmd ready", f"read the log of pod {pod.pod}")


def _registered(pod: SlurmPod | None, want: NodesExpectation) -> Finding | None:
    if pod is None or not (want.states or pod.states):
        return None
    if not pod.states:
        return unknown(
            FailureClass.HEALTH,
            "slurmd runs, but Slurm does not know the node",
            "a SlurmNodeState condition",
            "read slurmd's log: it must reach slurmctld and pass authentication",
        )
    found = slurm_states.state(pod.states, pod.reason)
    if found and "lower than configured" in pod.reason:
        return fail(FailureClass.HARDWARE, found.seen, found.expected, "compare nvidia-smi -L on the node with the NodeSet's Gres")
    return found


def _promise(
    name: str, pod: SlurmPod | None, sets: Mapping[str, NodeSet], seen: NodesObservation, want: NodesExpectation
) -> Finding | None:
    """Slurm, Kubernetes and the spec must mean the same GPUs."""
    if pod is None or not want.gpus or not want.promised:
        return None
    nodeset = sets.get(pod.nodeset)
    allocatable = seen.allocatable.get(name)
    if nodeset is None or allocatable is None:
        missing = f"NodeSet {pod.nodeset or 'of the pod'}" if nodeset is None else f"node {name}"
        return unknown(FailureClass.HEALTH, f"{missing} is not there", "both to compare", "look again")
    if nodeset.gpus != want.gpus or allocatable != want.gpus:
        return fail(
            FailureClass.INPUT if nodeset.gpus != want.gpus else FailureClass.HARDWARE,
            f"Slurm's Gres has {nodeset.gpus} GPUs, Kubernetes {allocatable}",
            f"{want.gpus} GPUs in both",
            f"correct the Gres of NodeSet {nodeset.name}, or see why the device plugin offers {allocatable}",
        )
    return None


# ---- functional ----------------------------------------------------------------------------------------------------------------


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """A job over all nodes reached each of them, and one on each node saw all of its GPUs."""
    if seen.srun is None:
        return slurm_srun.no_report(FUNCTIONAL, seen)
    return slurm_srun.unknown_nodes(FUNCTIONAL, seen.srun) or slurm_srun.jobs(FUNCTIONAL, seen.srun, seen.node_of, want)
