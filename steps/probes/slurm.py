"""Reads Slurm on Kubernetes: charts, Slinky's custom resources and their workloads, pods that run slurmd, and the srun check.

The container is called `slurmd` in both operators. Slurm's states are pod conditions: `SlurmNodeState…` (Slinky), `Slurm…` (SUNK).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from steps.contract.checks import CheckPod
from steps.contract.crds import ChartsObservation
from steps.contract.stages.slurm import (
    ControlObservation,
    FunctionalObservation,
    NodeSet,
    NodesObservation,
    Part,
    SlurmPod,
    Srun,
)
from steps.probes import charts as releases
from steps.probes import checks, crds, mpi_output, packed, slurm_errors, slurm_output, workloads
from steps.probes.conditions import Condition
from steps.probes.reader import KubeReader, Scope

NAMESPACE = "slurm"
CHECK = "srun"
API = "/apis/slinky.slurm.net/v1beta1"
PARTS = {"Controller": "controllers", "RestApi": "restapis", "LoginSet": "loginsets"}
HOSTNAME = "nodeset.slinky.slurm.net/pod-hostname"
"""Label of a Slinky pod with the name of its Slurm node."""

STATE = "SlurmNodeState"
SUNK_STATES = {"SlurmDrain": "drain", "SlurmCordon": "cordon", "SlurmNotResponding": "not_responding", "SlurmRunning": "allocated"}
"""SUNK's pod conditions in Slurm's words; none of them True means idle (gpu_stack §7.1)."""

GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-")
MOST_TROUBLED = 16


class PartStatus(Struct, frozen=True):
    """Conditions of a part."""

    conditions: tuple[Condition, ...] | None = None


class RawPart(Struct, frozen=True):
    """A Controller, RestApi or LoginSet."""

    metadata: workloads.Meta = workloads.Meta()
    status: PartStatus = PartStatus()


class NodeSetSpec(Struct, frozen=True, rename="camel"):
    """What a NodeSet promises of its nodes."""

    extra_conf: str = ""


class NodeSetStatus(Struct, frozen=True, rename="camel"):
    """Counts of pods and Slurm nodes."""

    desired: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    slurm_idle: int = 0
    slurm_allocated: int = 0
    slurm_down: int = 0
    slurm_drain: int = 0
    observed_generation: int = 0


class RawNodeSet(Struct, frozen=True):
    """A Slinky NodeSet."""

    metadata: workloads.Meta = workloads.Meta()
    spec: NodeSetSpec = NodeSetSpec()
    status: NodeSetStatus = NodeSetStatus()


def charts(kube: KubeReader, scope: Scope) -> ChartsObservation:
    """The operator's charts and CRDs."""
    return crds.with_charts(kube, scope)


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Charts, parts, workloads of parts, NodeSets, and the pods that cannot be used now."""
    space = _namespace(scope)
    found = {kind: kube.list(f"{API}/namespaces/{space}/{plural}", RawPart) for kind, plural in PARTS.items()}
    nodesets = kube.list(f"{API}/namespaces/{space}/nodesets", RawNodeSet)
    pods = _pods(kube, space)
    return ControlObservation(
        releases=releases.observe(kube, releases.scoped(scope)),
        root_app=releases.root(kube, scope),
        served=nodesets is not None,
        parts=tuple(_part(kind, raw) for kind, raws in found.items() for raw in raws or ()),
        workloads=workloads.read(kube, space, _of_a_part, kinds=("Deployment", "StatefulSet")),
        nodesets=tuple(_nodeset(raw) for raw in nodesets or ()),
        troubled=tuple(pod for pod in pods if _is_troubled(pod))[:MOST_TROUBLED],
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """Every pod that runs slurmd, every NodeSet's promise, and what Kubernetes has of GPUs."""
    space = _namespace(scope)
    found = kube.list(f"{API}/namespaces/{space}/nodesets", RawNodeSet) or ()
    return NodesObservation(
        pods=_pods(kube, space),
        nodesets=tuple(_nodeset(raw) for raw in found),
        allocatable={raw.metadata.name: _gpus(raw.status.allocatable) for raw in workloads.nodes(kube)},
    )


def functional(kube: KubeReader, scope: Scope) -> FunctionalObservation:
    """What the check pod's sinfo and srun said, and which Kubernetes node each Slurm node is."""
    space = _namespace(scope)
    pods = checks.read(kube, CHECK, namespace=space)
    reported = next((pod for pod in pods if pod.report), None)
    return FunctionalObservation(
        pods=pods,
        srun=_srun(kube, space, reported) if reported else None,
        node_of={pod.name: pod.node for pod in _pods(kube, space) if pod.node},
    )


def read_srun(text: str, exits: Mapping[str, int]) -> Srun:
    """The check's output: sections that begin with `@sinfo`, `@reasons`, `@hosts`, `@gpus` and `@errors`."""
    sections = {name: body for name, _, body in (part.partition("\n") for part in ("\n" + text).split("\n@")[1:])}
    known = slurm_output.reasons(sections.get("reasons", ""))
    errors = "\n".join((sections.get("errors", ""), *sections.values()))
    return Srun(
        nodes=slurm_output.with_reasons(slurm_output.sinfo(sections.get("sinfo", "")), known),
        hosts=tuple(dict.fromkeys(sections.get("hosts", "").split())),
        gpus=dict(_count_line(line) for line in sections.get("gpus", "").splitlines() if len(line.split()) == 2),
        exits=dict(exits),
        errors=(*slurm_errors.read(errors), *mpi_output.errors(errors)),
    )


def _srun(kube: KubeReader, space: str, pod: CheckPod) -> Srun:
    said = pod.report.get("exits")
    exits = {str(key): value for key, value in said.items() if isinstance(value, int)} if isinstance(said, dict) else {}
    text = packed.text(pod.report) or kube.log(space, pod.name, tail=20_000)
    return read_srun(text, exits)


def _count_line(line: str) -> tuple[str, int]:
    name, count = line.split()
    return name, int(count) if count.isdigit() and len(count) < 7 else 0


def _namespace(scope: Scope) -> str:
    return str(scope.arguments.get("slurm_namespace") or NAMESPACE)


def _part(kind: str, raw: RawPart) -> Part:
    bad = (entry for entry in raw.status.conditions or () if entry.status != "True")
    return Part(kind=kind, name=raw.metadata.name, bad=tuple(f"{entry.type}: {entry.message}"[:300] for entry in bad))


def _of_a_part(raw: workloads.Raw) -> bool:
    return any(owner.controller and owner.kind in PARTS for owner in raw.metadata.owner_references)


def _nodeset(raw: RawNodeSet) -> NodeSet:
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
        gpus=slurm_output.gpus(gres),
    )


def _pods(kube: KubeReader, space: str) -> tuple[SlurmPod, ...]:
    found = workloads.pods(kube, space)
    made = (_slurm_pod(pod) for pod in found if _runs_slurmd(pod) and not pod.metadata.deletion_timestamp)
    return tuple(sorted(made, key=lambda pod: (pod.node, pod.name)))


def _runs_slurmd(pod: workloads.Pod) -> bool:
    statuses = pod.status.container_statuses
    named = any(entry.name == "slurmd" for entry in statuses)
    return named or pod.metadata.labels.get("app.kubernetes.io/name") == "slurmd"


def _slurm_pod(pod: workloads.Pod) -> SlurmPod:
    meta, labels = pod.metadata, pod.metadata.labels
    owner = next((entry.name for entry in meta.owner_references if entry.controller), "")
    states, reason = _states(pod.status.conditions)
    return SlurmPod(
        pod=meta.name,
        name=labels.get(HOSTNAME) or meta.name,
        node=pod.spec.node_name,
        nodeset=owner,
        phase=pod.status.phase,
        ready=pod.ready,
        states=states,
        reason=reason,
        trouble=None if pod.ready else workloads.trouble(pod),
    )


def _states(conditions: Iterable[Condition]) -> tuple[tuple[str, ...], str]:
    """Slurm's words for a node and its reason, from the pod's conditions."""
    true = [entry for entry in conditions if entry.status == "True"]
    slinky = [entry for entry in true if entry.type.startswith(STATE)]
    sunk = [SUNK_STATES[entry.type] for entry in true if entry.type in SUNK_STATES]
    reason = next((entry.message for entry in (*slinky, *true) if entry.type.startswith("Slurm") and entry.message), "")
    if slinky:
        return tuple(_word(entry.type.removeprefix(STATE)) for entry in slinky), reason[:300]
    known = any(entry.type in SUNK_STATES for entry in conditions)
    return (tuple(sunk) or ("idle",), reason[:300]) if known else ((), "")


def _word(name: str) -> str:
    """`NotResponding` → `not_responding`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() and at else letter.lower() for at, letter in enumerate(name))


def _is_troubled(pod: SlurmPod) -> bool:
    return not pod.ready or any(word in pod.states for word in ("down", "drain", "not_responding", "invalid_reg", "fail", "error"))


def _gpus(resources: Mapping[str, Any]) -> int:
    """Whole GPUs and GPU instances that a node has to give."""
    counts = (value for key, value in resources.items() if key == GPU_RESOURCES[0] or key.startswith(GPU_RESOURCES[1]))
    return sum(int(value) for value in counts if str(value).isdigit())
