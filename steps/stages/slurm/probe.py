"""Reads Slurm on Kubernetes: charts, Slinky's custom resources and workloads, pods that run slurmd, and the srun check.

The container is called `slurmd` in both operators. Pod conditions carry Slurm's states: `SlurmNodeState…` (Slinky), `Slurm…`
(SUNK).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.objects.charts import ChartsObservation
from steps.contract.objects.checks import CheckPod
from steps.contract.plain_text import line, truncate
from steps.stages.shared import kube_objects, probe_charts, probe_checks, probe_workloads
from steps.stages.shared.kube_objects import Condition, Conditioned
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.slurm_states import takes_jobs
from steps.stages.slurm import probe_placement, probe_syncer, reader, reader_jobs, reader_slurm_errors
from steps.stages.slurm.contract import (
    ControlObservation,
    DrainObservation,
    FunctionalObservation,
    GpuMonitorCondition,
    NodeSet,
    NodesObservation,
    Part,
    PlacementObservation,
    SchedulingObservation,
    SlurmPod,
    SlurmPodsObservation,
    Srun,
)

NAMESPACE = "slurm"
CHECK, JOBS_CHECK = "srun", "slurm-jobs"
PODS_CHECK, LOCK_CHECK = "slurm-pods", "slurm-lock"
API = "/apis/slinky.slurm.net/v1beta1"
SUNK_API = "/apis/sunk.coreweave.com/v1alpha1"
PARTS = {"Controller": "controllers", "RestApi": "restapis", "LoginSet": "loginsets", "Accounting": "accountings"}
HOSTNAME = "nodeset.slinky.slurm.net/pod-hostname"
"""Label of a Slinky pod with the name of its Slurm node."""

STATE = "SlurmNodeState"
SUNK_STATES = {"SlurmDrain": "drain", "SlurmCordon": "cordon", "SlurmNotResponding": "not_responding", "SlurmRunning": "allocated"}
"""SUNK's pod conditions as Slurm states; idle if none of them is True (`steps/docs/facts/slurm.md`, SUNK)."""

GPU = "nvidia.com/gpu"
GPU_RESOURCES = (GPU, "nvidia.com/mig-")
MONITOR, MOST_MESSAGE = "Gcm", 200
"""Beginning of the types of GCM's conditions, and most characters of a message that are kept."""
MOST_TROUBLED = 16
LOG_LINES = 400_000
"""Lines of the check's log that are read; it has up to three for each node, so a lower limit cut the first section off."""


class _NodeSetSpec(Struct, frozen=True, rename="camel"):
    """Spec of a NodeSet: the configuration that it promises for its nodes."""

    extra_conf: str = ""


class _NodeSetStatus(Struct, frozen=True, rename="camel"):
    desired: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    slurm_idle: int = 0
    slurm_allocated: int = 0
    slurm_down: int = 0
    slurm_drain: int = 0
    observed_generation: int = 0


class _RawNodeSet(Struct, frozen=True):
    """A Slinky NodeSet as the API returns it."""

    metadata: kube_objects.ObjectMeta = kube_objects.ObjectMeta()
    spec: _NodeSetSpec = _NodeSetSpec()
    status: _NodeSetStatus = _NodeSetStatus()


class _SunkNodeSetStatus(Struct, frozen=True, rename="camel"):
    desired_number_scheduled: int = 0
    number_ready: int = 0
    number_drain: int = 0
    number_unavailable: int = 0
    observed_generation: int = 0


class _SunkNodeSet(Struct, frozen=True):
    """A NodeSet of SUNK as the API returns it."""

    metadata: kube_objects.ObjectMeta = kube_objects.ObjectMeta()
    status: _SunkNodeSetStatus = _SunkNodeSetStatus()


def charts(kube: KubeReader, scope: Scope) -> ChartsObservation:
    """Return the operator's charts and CRDs."""
    return probe_charts.with_charts(kube, scope)


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return charts, Slinky's custom resources and their workloads, NodeSets, and the slurmd pods that Slurm cannot use now."""
    space, sunk = _namespace(scope), _is_sunk(scope)
    kinds = {} if sunk else PARTS
    raw_parts = {kind: kube.list(f"{API}/namespaces/{space}/{plural}", Conditioned) for kind, plural in kinds.items()}
    nodesets = _sunk_nodesets(kube, space) if sunk else _nodesets(kube, space)
    pods = _pods(kube, space)
    return ControlObservation(
        releases=probe_charts.observe(kube, probe_charts.scoped_releases(scope)),
        root_app=probe_charts.root(kube, scope),
        served=nodesets is not None,
        parts=tuple(_part(kind, raw) for kind, raws in raw_parts.items() for raw in raws or ()),
        workloads=probe_workloads.read(kube, space, _of_a_part, kinds=("Deployment", "StatefulSet")),
        nodesets=nodesets or (),
        syncers=probe_syncer.read(kube, space) if sunk else (),
        troubled=tuple(pod for pod in pods if _is_troubled(pod))[:MOST_TROUBLED],
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """Return every pod that runs slurmd, every NodeSet's promised GPUs, and by node allocatable GPUs and GCM's conditions."""
    space, machines = _namespace(scope), probe_workloads.nodes(kube)
    return NodesObservation(
        pods=_pods(kube, space),
        # SUNK's NodeSets promise no number of GPUs
        nodesets=() if _is_sunk(scope) else _nodesets(kube, space) or (),
        allocatable={raw.metadata.name: _gpus(raw.status.allocatable) for raw in machines},
        monitored=tuple(_monitored(machines)),
    )


def _monitored(machines: Iterable[kube_objects.Node]) -> Iterator[GpuMonitorCondition]:
    for raw in machines:
        for entry in raw.status.conditions:
            if entry.type.startswith(MONITOR):
                message = truncate(line(entry.message), MOST_MESSAGE)
                yield GpuMonitorCondition(node=raw.metadata.name, type=entry.type, status=entry.status, message=message)


def placement(kube: KubeReader, scope: Scope) -> PlacementObservation:
    """Return the slurmd pods, and who else is on their nodes."""
    return probe_placement.read(kube, scope, _namespace(scope))


def functional(kube: KubeReader, scope: Scope) -> FunctionalObservation:
    """Return the check pods, the parsed output of sinfo and srun (None: no report), and Slurm node → Kubernetes node."""
    space = _namespace(scope)
    pods, reported, text = _check(kube, scope, space, CHECK)
    return FunctionalObservation(
        namespace=space,
        pods=pods,
        srun=read_srun(text, _exits(reported)) if reported else None,
        node_of={pod.name: pod.node for pod in _pods(kube, space) if pod.node},
    )


def scheduling(kube: KubeReader, scope: Scope) -> SchedulingObservation:
    """Return the check pods, the parsed output of the check's jobs (None: no report), and Slurm node → Kubernetes node."""
    space = _namespace(scope)
    pods, reported, text = _check(kube, scope, space, JOBS_CHECK)
    return SchedulingObservation(
        namespace=space,
        pods=pods,
        report=reader_jobs.read(text) if reported else None,
        node_of={pod.name: pod.node for pod in _pods(kube, space) if pod.node},
    )


def drain(_kube: KubeReader, scope: Scope) -> DrainObservation:
    """Return what the round trip of the task saw (`steps.runtime.drain_round_trip`)."""
    return msgspec.convert(scope.arguments.get("output", {}), DrainObservation)


def pods(kube: KubeReader, scope: Scope) -> SlurmPodsObservation:
    """Return the pods of SUNK's pod scheduler, the pod beside them, and the nodes that run slurmd."""
    space = _namespace(scope)
    return SlurmPodsObservation(
        namespace=space,
        scheduled=probe_checks.read(kube, PODS_CHECK, namespace=space),
        beside=probe_checks.read(kube, LOCK_CHECK, namespace=space),
        slurm_nodes=tuple(dict.fromkeys(pod.node for pod in _pods(kube, space) if pod.node and pod.ready)),
    )


def read_srun(text: str, exits: Mapping[str, int]) -> Srun:
    """Parse the check's output: sections that begin with `@sinfo`, `@reasons`, `@hosts`, `@gpus`, `@clusters` and `@errors`."""
    sections = {name: body for name, _, body in (part.partition("\n") for part in ("\n" + text).split("\n@")[1:])}
    known = reader.reasons(sections.get("reasons", ""))
    rows = [row for line in sections.get("gpus", "").splitlines() if len(row := line.split(None, 3)) > 1]
    errors = "\n".join((sections.get("errors", ""), *sections.values()))
    return Srun(
        nodes=reader.with_reasons(reader.sinfo(sections.get("sinfo", "")), known),
        hosts=tuple(dict.fromkeys(sections.get("hosts", "").split())),
        gpus={row[0]: _number(row[1]) for row in rows},
        passed={row[0]: _number(row[2]) for row in rows if len(row) > 2},
        failed={row[0]: row[3][:300] for row in rows if len(row) > 3},
        exits=dict(exits),
        clusters=_clusters(sections.get("clusters", "")),
        errors=reader_slurm_errors.read(errors),
    )


def _check(kube: KubeReader, scope: Scope, space: str, check: str) -> tuple[tuple[CheckPod, ...], CheckPod | None, str]:
    """Return a check's pods, the one that left a report (None: none yet), and its output.

    With SUNK the check ran as a command in the login pod; with Slinky it has a pod of its own, whose log holds long output.
    """
    if command := probe_checks.executed(scope.arguments):
        pod, text = command
        return (pod,), pod if pod.report else None, text
    pods = probe_checks.read(kube, check, namespace=space)
    reported = next((pod for pod in pods if pod.report), None)
    if reported is None:
        return pods, None, ""
    return pods, reported, probe_checks.unpack_output(reported.report) or kube.log(space, reported.name, tail=LOG_LINES)


def _exits(pod: CheckPod) -> dict[str, int]:
    codes = pod.report.get("exits")
    return {str(key): value for key, value in codes.items() if isinstance(value, int)} if isinstance(codes, dict) else {}


def _clusters(text: str) -> tuple[str, ...]:
    """Return the clusters in lines `NAME|CONTROLLER|…` of sacctmgr whose controller has registered; others have no address."""
    rows = (line.strip().split("|") for line in text.splitlines())
    return tuple(row[0] for row in rows if len(row) > 1 and row[0] and row[1])


def _number(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 7 else 0


def _namespace(scope: Scope) -> str:
    return str(scope.arguments.get("slurm_namespace") or NAMESPACE)


def _is_sunk(scope: Scope) -> bool:
    """Return True if the task is about SUNK: its account may not list Slinky's kinds, nor that of Slinky those of SUNK."""
    return scope.arguments.get("operator") == "sunk"


def _part(kind: str, raw: Conditioned) -> Part:
    bad = (entry for entry in raw.status.conditions if entry.status != "True")
    return Part(kind=kind, name=raw.metadata.name, bad=tuple(f"{entry.type}: {entry.message}"[:300] for entry in bad))


def _of_a_part(raw: kube_objects.DeployedWorkload) -> bool:
    return any(owner.controller and owner.kind in PARTS for owner in raw.metadata.owner_references)


def _nodeset(raw: _RawNodeSet) -> NodeSet:
    status = raw.status
    promised = (pair.partition("=") for pair in raw.spec.extra_conf.split())
    gres = ",".join(value for key, _, value in promised if key.lower() == "gres")
    return NodeSet(
        name=raw.metadata.name,
        generation=raw.metadata.generation,
        observed=status.observed_generation,
        desired=status.desired,
        replicas=status.replicas,
        updated=status.updated_replicas,
        ready=status.ready_replicas,
        idle=status.slurm_idle,
        allocated=status.slurm_allocated,
        down=status.slurm_down,
        drain=status.slurm_drain,
        gpus=reader.gpus(gres),
    )


def _nodesets(kube: KubeReader, space: str) -> tuple[NodeSet, ...] | None:
    """Return Slinky's NodeSets; None if the API does not serve them."""
    raw_sets = kube.list(f"{API}/namespaces/{space}/nodesets", _RawNodeSet)
    return None if raw_sets is None else tuple(map(_nodeset, raw_sets))


def _sunk_nodesets(kube: KubeReader, space: str) -> tuple[NodeSet, ...]:
    """Return SUNK's NodeSets, which count pods and drained nodes."""
    raw_sets = kube.list(f"{SUNK_API}/namespaces/{space}/nodesets", _SunkNodeSet) or ()
    return tuple(
        NodeSet(
            name=raw.metadata.name,
            generation=raw.metadata.generation,
            observed=raw.status.observed_generation,
            desired=raw.status.desired_number_scheduled,
            tells_updated=False,
            ready=raw.status.number_ready,
            unavailable=raw.status.number_unavailable,
            idle=raw.status.number_ready,
            drain=raw.status.number_drain,
        )
        for raw in raw_sets
    )


def _pods(kube: KubeReader, space: str) -> tuple[SlurmPod, ...]:
    pods = probe_workloads.pods(kube, space)
    slurm_pods = (_slurm_pod(pod) for pod in pods if _runs_slurmd(pod) and not pod.metadata.deletion_timestamp)
    return tuple(sorted(slurm_pods, key=lambda pod: (pod.node, pod.name)))


def _runs_slurmd(pod: kube_objects.Pod) -> bool:
    statuses = pod.status.container_statuses
    named = any(entry.name == "slurmd" for entry in statuses)
    return named or pod.metadata.labels.get("app.kubernetes.io/name") == "slurmd"


def _slurm_pod(pod: kube_objects.Pod) -> SlurmPod:
    meta, labels = pod.metadata, pod.metadata.labels
    owner = next((entry.name for entry in meta.owner_references if entry.controller), "")
    states, reason = _states(pod.status.conditions)
    return SlurmPod(
        pod=meta.name,
        name=labels.get(HOSTNAME) or meta.name,
        node=pod.spec.node_name,
        nodeset=owner,
        gpus=pod.spec.limit(GPU),
        phase=pod.status.phase,
        ready=pod.ready,
        states=states,
        reason=reason,
        trouble=None if pod.ready else probe_workloads.trouble(pod),
    )


def _states(conditions: Iterable[Condition]) -> tuple[tuple[str, ...], str]:
    """Return Slurm's states of a node and its reason, from the pod's conditions."""
    true = [entry for entry in conditions if entry.status == "True"]
    slinky = [entry for entry in true if entry.type.startswith(STATE)]
    sunk = [SUNK_STATES[entry.type] for entry in true if entry.type in SUNK_STATES]
    reason = next((entry.message for entry in (*slinky, *true) if entry.type.startswith("Slurm") and entry.message), "")
    if slinky:
        return tuple(_word(entry.type.removeprefix(STATE)) for entry in slinky), reason[:300]
    # without any of SUNK's conditions the node has not registered, so it is not idle
    known = any(entry.type in SUNK_STATES for entry in conditions)
    return (tuple(sunk) or ("idle",), reason[:300]) if known else ((), "")


def _word(name: str) -> str:
    """Return a state from a pod condition in Slurm's own spelling: `NotResponding` → `not_responding`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() and at else letter.lower() for at, letter in enumerate(name))


def _is_troubled(pod: SlurmPod) -> bool:
    return not pod.ready or not takes_jobs(pod.states)


def _gpus(resources: Mapping[str, Any]) -> int:
    """Return the number of GPUs and MIG instances in a node's allocatable resources."""
    counts = (value for key, value in resources.items() if key == GPU_RESOURCES[0] or key.startswith(GPU_RESOURCES[1]))
    return sum(int(value) for value in counts if str(value).isdigit())
