"""Gates of slurm: the operator has rolled out, Slurm has every node with all its GPUs, and srun reaches them.

See `steps/docs/facts/slurm.md`, Slinky and SUNK.
"""

from collections.abc import Mapping

from steps.contract.objects.charts import ChartsExpectation, ChartsObservation
from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes, passed
from steps.stages.shared import gate_charts, gate_checks, gate_slurm_states
from steps.stages.shared.causes import RUNTIME_REASONS
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown
from steps.stages.slurm import gate_drain, gate_health, gate_placement, gate_scheduling, gate_slurm_pods, gate_srun
from steps.stages.slurm.contract import (
    ControlExpectation,
    ControlObservation,
    DrainExpectation,
    DrainObservation,
    FunctionalExpectation,
    FunctionalObservation,
    NodeSet,
    NodesExpectation,
    NodesObservation,
    PlacementExpectation,
    PlacementObservation,
    SchedulingExpectation,
    SchedulingObservation,
    SlurmPod,
    SlurmPodsExpectation,
    SlurmPodsObservation,
)

CHARTS, CONTROL = "slurm/charts", "slurm/control"
NODES, FUNCTIONAL, SCHEDULING = "slurm/nodes", "slurm/functional", "slurm/scheduling"
PLACEMENT, DRAIN, PODS = "slurm/placement", "slurm/drain", "slurm/pods"


def charts(seen: ChartsObservation, want: ChartsExpectation) -> Verdict:
    """Check that the operator is deployed and its kinds are served, so that the chart of the cluster itself can be installed."""
    return gate_charts.with_charts(CHARTS, seen, want)


# ---- control -------------------------------------------------------------------------------------------------------------------


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check charts, Slinky's resources and workloads, SUNK's syncer, rolled-out NodeSets, and that Slurm can use enough nodes."""
    problem = gate_charts.problem(seen.releases, want.releases, seen.root_app, want.root_app)
    problem = problem or _parts(seen, want) or gate_health.syncer(seen, want) or _nodesets(seen, want)
    if problem is not None:
        return problem.verdict(CONTROL)
    total = sum(nodeset.desired for nodeset in seen.nodesets)
    usable = sum(nodeset.idle + nodeset.allocated for nodeset in seen.nodesets)
    names = ", ".join(workload.name for workload in seen.workloads)
    return passed(CONTROL, f"{usable} of {total} Slurm nodes idle or allocated; {names or 'charts'} ready")


def _parts(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    if want.parts and not seen.served:
        step = "check the release slurm-operator-crds"
        return unknown(FailureClass.DEPENDENCY, "slinky.slurm.net/v1beta1 is not served", "Slinky's CRDs", step)
    kinds = {part.kind for part in seen.parts}
    missing = [kind for kind in want.parts if kind not in kinds]
    if missing:
        step = "check the values of the release slurm"
        return unknown(FailureClass.APPLY, f"no {', '.join(missing)} in the cluster", ", ".join(want.parts), step)
    bad = next((f"{part.kind} {part.name} {part.bad[0]}" for part in seen.parts if part.bad), "")
    if bad:
        return fail(FailureClass.HEALTH, bad, "no condition that is not True", "read the operator's log")
    # the operator sets no condition on the parts, so their workloads are looked at too
    unready = next((workload for workload in seen.workloads if not workload.settled()), None)
    if unready is None and len(seen.workloads) >= want.workloads:
        return None
    state = f"{len(seen.workloads)} of {want.workloads} workloads of Slurm's controller, REST API and login exist"
    if unready is not None:
        state = f"{unready.kind} {unready.name} has {unready.ready} of {unready.desired} pods ready"
    step = "look at their pods: slurmctld needs its volume, slurmrestd and login need slurmctld"
    return unknown(FailureClass.HEALTH, state, "all ready", step)


def _nodesets(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    if not want.nodes_desired:
        return None
    desired = sum(nodeset.desired for nodeset in seen.nodesets)
    # the operator leaves out cordoned nodes, so a few may be missing, but never too many wanted
    if not want.nodes_desired - want.spare <= desired <= want.nodes_desired:
        names = ", ".join(f"{nodeset.name} {nodeset.desired}" for nodeset in seen.nodesets) or "no NodeSet"
        expected = f"{want.nodes_desired}" + (f", at least {want.nodes_desired - want.spare}" if want.spare else "")
        step = "compare the NodeSets' node selectors with the nodes' label bringup/group"
        return unknown(FailureClass.INPUT, f"NodeSets want {desired} pods ({names})", expected, step)
    problem = next(filter(None, map(_rollout, seen.nodesets)), None)
    return _short(seen, want, problem) if problem else None


def _rollout(nodeset: NodeSet) -> str:
    """Return how a NodeSet's status lags behind its spec, in words; empty if it does not."""
    if nodeset.observed != nodeset.generation:
        return f"{nodeset.name}: status is of generation {nodeset.observed}, spec of {nodeset.generation}"
    if nodeset.tells_updated and nodeset.updated < nodeset.desired:
        return f"{nodeset.name}: {nodeset.updated} of {nodeset.desired} pods updated, {nodeset.ready} ready"
    if _ready(nodeset) < nodeset.desired:
        return f"{nodeset.name}: {nodeset.ready} of {nodeset.desired} pods ready, {nodeset.unavailable} unavailable"
    if nodeset.down or nodeset.drain or nodeset.idle + nodeset.allocated < nodeset.desired:
        usable = max(nodeset.idle + nodeset.allocated - nodeset.drain, 0)
        return f"{nodeset.name}: {usable} of {nodeset.desired} Slurm nodes usable, {nodeset.down} down, {nodeset.drain} drained"
    return ""


def _ready(nodeset: NodeSet) -> int:
    return min(nodeset.ready, nodeset.desired - nodeset.unavailable)


def _short(seen: ControlObservation, want: ControlExpectation, problem: str) -> Finding | None:
    """Return a finding if Slurm can use too few nodes; None if enough. A NodeSet that is behind its spec never passes.

    The operator counts a drained node that is idle as both (`slurmDrain` is a flag), so drained nodes are subtracted.
    """
    stale = any(nodeset.observed != nodeset.generation for nodeset in seen.nodesets)
    usable = sum(max(nodeset.idle + nodeset.allocated - nodeset.drain, 0) for nodeset in seen.nodesets)
    updated = sum(nodeset.updated if nodeset.tells_updated else nodeset.desired for nodeset in seen.nodesets)
    least = min(usable, updated, sum(map(_ready, seen.nodesets)))
    if not stale and least >= want.nodes_desired - want.spare:
        return None
    # pods are up and Slurm still refuses the nodes: waiting does not change that
    settled = not stale and all(
        _ready(nodeset) >= nodeset.desired and (nodeset.down or nodeset.drain) for nodeset in seen.nodesets if _rollout(nodeset)
    )
    first = next((pod for pod in seen.troubled if pod.reason or pod.trouble), None)
    summary = f"{problem}{f'; {_pod_state(first)}' if first else ''}"
    expected = f"all of {want.nodes_desired} updated, ready and usable" + (f" but {want.spare}" if want.spare else "")
    if settled:
        lower = any("lower than configured" in pod.reason for pod in seen.troubled)
        return fail(FailureClass.HARDWARE if lower else FailureClass.HEALTH, summary, expected, _next_step(first))
    return unknown(FailureClass.HEALTH, summary, expected, _next_step(first))


def _pod_state(pod: SlurmPod) -> str:
    why = pod.reason or (f"{pod.trouble.reason} {pod.trouble.message}".strip() if pod.trouble else pod.phase)
    return f"{pod.name} {'+'.join(pod.states)}: {why}" if pod.states else f"{pod.name}: {why}"


def _next_step(pod: SlurmPod | None) -> str:
    if pod is None:
        return "look at the NodeSets' pods and events"
    if pod.states:
        cause = f"remove the cause on {pod.node or pod.name}"
        if "lower than configured (0 <" in pod.reason:
            cause = (
                "slurmd finds no GPU: see gres.conf (that of SUNK, in ConfigMap slurm-slurm-conf, has AutoDetect=nvml, and its "
                "images lack NVML: write AutoDetect=off and a File= line for each node, and restart the slurmd pods)"
            )
        return f"{cause}, then scontrol update nodename={pod.name} state=resume"
    return f"look at pod {pod.pod} on {pod.node or 'no node'}"


# ---- nodes ---------------------------------------------------------------------------------------------------------------------


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Check that each expected node runs slurmd, is usable by Slurm, and has as many GPUs in Slurm, Kubernetes and spec.

    Where GCM monitors the GPUs, its conditions must be False on each node.
    """
    by_node = {pod.node: pod for pod in seen.pods if pod.node}
    waiting = next((pod for pod in seen.pods if not pod.node), None)
    sets = {nodeset.name: nodeset for nodeset in seen.nodesets}
    rows = [_node(name, by_node.get(name), waiting, sets, seen, want) for name in want.nodes]
    what = f"usable by Slurm with {want.gpus} GPUs" if want.gpus else "usable by Slurm"
    types = gate_health.types(seen)
    return of_nodes(NODES, rows, what=f"{what}, and False {', '.join(types)}" if types else what)


def _node(
    name: str,
    pod: SlurmPod | None,
    waiting: SlurmPod | None,
    sets: Mapping[str, NodeSet],
    seen: NodesObservation,
    want: NodesExpectation,
) -> NodeVerdict:
    finding = _running(pod, waiting) or _registered(pod, want) or _promise(name, pod, sets, seen, want)
    finding = finding or gate_health.monitored(name, seen, want)
    return node_verdict(name, finding, f"Slurm node {pod.name} {'+'.join(pod.states)}" if pod else "")


def _running(pod: SlurmPod | None, waiting: SlurmPod | None) -> Finding | None:
    if pod is None:
        state = f"no pod runs slurmd here{f'; {_pod_state(waiting)}' if waiting else ''}"
        step = "check the NodeSet's node selector and tolerations, and free GPUs on the node"
        return unknown(FailureClass.HEALTH, state, "one slurmd pod", step)
    if pod.ready:
        return None
    why, step = pod.trouble, f"read the log of pod {pod.pod}"
    state = f"pod {pod.pod} is {pod.phase} and not ready" + (f": {why.reason} {why.message}".rstrip() if why else "")
    if why is not None and why.reason in RUNTIME_REASONS:
        return fail(FailureClass.RUNTIME, state, "slurmd ready", step)
    return unknown(FailureClass.HEALTH, state, "slurmd ready", step)


def _registered(pod: SlurmPod | None, want: NodesExpectation) -> Finding | None:
    if pod is None or not (want.states or pod.states):
        return None
    if not pod.states:
        step = "read slurmd's log: it must reach slurmctld and pass authentication (SUNK: the syncer's log too)"
        return unknown(FailureClass.HEALTH, "slurmd runs, but Slurm does not know the node", "a condition with its state", step)
    finding = gate_slurm_states.state(pod.states, pod.reason)
    if finding and "lower than configured" in pod.reason:
        step = "compare nvidia-smi -L on the node with the NodeSet's Gres"
        return fail(FailureClass.HARDWARE, finding.seen, finding.expected, step)
    return finding


def _promise(
    name: str, pod: SlurmPod | None, sets: Mapping[str, NodeSet], seen: NodesObservation, want: NodesExpectation
) -> Finding | None:
    """Return a finding unless Slurm, Kubernetes and the spec agree on the number of GPUs."""
    gpus = want.others.get(name, want.gpus)
    if pod is None:
        return None
    if pod.gpus != gpus:
        step = f"compare the resources of NodeSet {pod.nodeset or 'of the pod'} with its nodes: slurmd sees what its pod gets"
        return fail(FailureClass.INPUT, f"pod {pod.pod} gets {pod.gpus} GPUs", f"{gpus}", step)
    allocatable = seen.allocatable.get(name)
    installed = want.installed.get(name, gpus)
    if not want.promised and allocatable is not None:
        if allocatable == installed:
            return None
        step = f"see why the device plugin offers {allocatable}"
        return fail(FailureClass.HARDWARE, f"Kubernetes has {allocatable} GPUs", f"{installed} GPUs", step)
    nodeset = sets.get(pod.nodeset)
    if nodeset is None or allocatable is None:
        missing = f"NodeSet {pod.nodeset or 'of the pod'}" if nodeset is None else f"node {name}"
        return unknown(FailureClass.HEALTH, f"{missing} is not there", "both to compare", "look again")
    if nodeset.gpus != gpus or allocatable != installed:
        failure_class = FailureClass.INPUT if nodeset.gpus != gpus else FailureClass.HARDWARE
        numbers = f"Slurm's Gres has {nodeset.gpus} GPUs, Kubernetes {allocatable}"
        step = f"correct the Gres of NodeSet {nodeset.name}, or see why the device plugin offers {allocatable}"
        both = f"{gpus} GPUs in both" if installed == gpus else f"{gpus} in Slurm, {installed} in Kubernetes"
        return fail(failure_class, numbers, both, step)
    return None


def placement(seen: PlacementObservation, want: PlacementExpectation) -> Verdict:
    """Check that slurmd pods are those of the plan, that no other pod has GPUs there, and that the lock evicts nothing needed."""
    return gate_placement.judge(PLACEMENT, seen, want)


# ---- functional ----------------------------------------------------------------------------------------------------------------


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that a job over all nodes reached each of them, and that a job on each node saw all its GPUs."""
    if seen.srun is None:
        pod, what = next(iter(seen.pods), None), "what sinfo and srun say"
        return gate_checks.silent(pod, (), what, seen.namespace).verdict(FUNCTIONAL, final=True)
    if finding := gate_srun.unknown_nodes(seen.srun):
        return finding.verdict(FUNCTIONAL)
    return gate_srun.jobs(FUNCTIONAL, seen.srun, seen.node_of, want)


def scheduling(seen: SchedulingObservation, want: SchedulingExpectation) -> Verdict:
    """Check controller, node records, partitions, QoS and topology against the plan, and that each kind of job does its work."""
    return gate_scheduling.judge(SCHEDULING, seen, want)


def drain(seen: DrainObservation, want: DrainExpectation) -> Verdict:
    """Check that drains and cordons of a node reach the other side, and that the node comes back by both ways."""
    return gate_drain.judge(DRAIN, seen, want)


def pods(seen: SlurmPodsObservation, want: SlurmPodsExpectation) -> Verdict:
    """Check that Slurm schedules pods of Kubernetes that ask for it, and that its lock spares a pod that tolerates it."""
    return gate_slurm_pods.judge(PODS, seen, want)
