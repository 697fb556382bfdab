"""Corrects SUNK's gres.conf after each install and upgrade, restarts the pods that read the old one, and resumes their nodes.

Beside it the task writes topology.conf, if the plan has leaf switches: SUNK's nodes have the names of pods.
"""

from __future__ import annotations

from msgspec import Struct

from steps import timeouts
from steps.clients.kube.api import ApiError
from steps.contract import topology_conf
from steps.contract.canonical import digest
from steps.contract.gres_conf import KEY, GresConf, NodeGpus, nodes_of, text_of
from steps.contract.plain_text import count
from steps.contract.verdict import Verdict, passed
from steps.errors import NotUnderstood, Unreachable
from steps.runtime.running_task import RunningTask
from steps.stages.shared.quantities import quantity

MARK = "bringup/gres-conf"
"""Annotation of the ConfigMap: the digest of the gres.conf for which all pods have been restarted."""
_GPU = "nvidia.com/gpu"
_ROLE, _NODE_SET = "sunk.coreweave.com/role=compute", "sunk.coreweave.com/nodeset"
_MOST_OUTPUT = 300
_RETRY = "not resumed"


class _SlurmMeta(Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _ConfigMapOfSlurm(Struct, frozen=True):
    metadata: _SlurmMeta = _SlurmMeta()
    data: dict[str, str] = {}


class _SlurmdResources(Struct, frozen=True):
    requests: dict[str, str | int] = {}


class _SlurmdContainer(Struct, frozen=True):
    resources: _SlurmdResources = _SlurmdResources()


class _SlurmdSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_SlurmdContainer, ...] = ()


class _SlurmdCondition(Struct, frozen=True):
    type: str
    status: str


class _SlurmdStatus(Struct, frozen=True):
    conditions: tuple[_SlurmdCondition, ...] = ()


class _SlurmdPod(Struct, frozen=True):
    metadata: _SlurmMeta
    spec: _SlurmdSpec = _SlurmdSpec()
    status: _SlurmdStatus = _SlurmdStatus()

    @property
    def gpus(self) -> int:
        """Return how many GPUs the pod requests."""
        return sum(int(quantity(part.resources.requests.get(_GPU, 0)) or 0) for part in self.spec.containers)

    @property
    def is_ready(self) -> bool:
        """Return True if the pod is ready."""
        return any(entry.type == "Ready" and entry.status == "True" for entry in self.status.conditions)


def settle(task: RunningTask, wanted: GresConf) -> Verdict:
    """Correct gres.conf and restart pods until every pod with GPUs has read its line, then resume their nodes.

    Return a verdict that passes and tells what was done. What is missing at the end is no failure of this task: the gates after it
    judge pods and nodes, and know the causes. Pods that come later are found when the task runs again.
    """
    path, began = f"/api/v1/namespaces/{wanted.namespace}/configmaps/{wanted.name}", task.clock.now()
    seen: dict[str, tuple[NodeGpus, str]] = {}
    changed_at, restarted = began, 0
    while True:
        live, pods = task.kube.get(path, _ConfigMapOfSlurm), _slurmd_pods(task, wanted)
        nodes = {name: NodeGpus(_type(wanted, pod), pod.gpus) for name, pod in pods.items() if pod.gpus}
        placed = {name: (NodeGpus(_type(wanted, pod), pod.gpus), pod.spec.node_name) for name, pod in pods.items()}
        now = task.clock.now()
        if placed != seen:
            seen, changed_at = placed, now
        late = now - began > timeouts.GRES_PODS
        complete = len(pods) >= wanted.pods or now - changed_at > timeouts.GRES_STABLE
        if live is not None and pods and (complete or late):
            topology = _write_topology(task, wanted, path, live, pods)
            moved = _correct(task, wanted, path, live, nodes) if nodes else 0
            restarted += moved
            if not moved and (late or all(pod.is_ready for pod in pods.values())):
                resumed = _resume(task, wanted, topology)
                if late or not resumed.startswith(_RETRY):
                    done = f"{KEY} has {count(len(nodes), 'node')} with GPUs, {count(restarted, 'pod')} restarted"
                    return passed(task.own_gate, f"{done}, {resumed}")
        elif late:
            lacking = f"no ConfigMap {wanted.name}" if live is None else "no pod of slurmd with GPUs"
            return passed(task.own_gate, f"nothing to correct: {lacking} in namespace {wanted.namespace}")
        task.clock.pause(timeouts.SLURM_PODS_POLL, began + timeouts.GRES_PODS)


def _slurmd_pods(task: RunningTask, wanted: GresConf) -> dict[str, _SlurmdPod]:
    """Return the pods of slurmd with GPUs; all of them if there is a topology, which has the others too."""
    pods = task.kube.list(f"/api/v1/namespaces/{wanted.namespace}/pods", _SlurmdPod, labels=_ROLE) or ()
    return {pod.metadata.name: pod for pod in pods if pod.gpus or (wanted.tree and pod.spec.node_name)}


def _write_topology(task: RunningTask, wanted: GresConf, path: str, live: _ConfigMapOfSlurm, pods: dict[str, _SlurmdPod]) -> str:
    """Write topology.conf with the pods on the hosts of each leaf, and return its text; empty if the plan has no leaves."""
    leaf_of = task.leaves(wanted.select) if wanted.tree else {}
    leaves: dict[str, list[str]] = {}
    for name, pod in pods.items():
        if leaf := leaf_of.get(pod.spec.node_name, ""):
            leaves.setdefault(leaf, []).append(name)
    text = topology_conf.text_of(leaves)
    if text and live.data.get(topology_conf.KEY) != text:
        task.kube.merge(path, {"data": {topology_conf.KEY: text}})
        task.did(f"changed {topology_conf.KEY} of ConfigMap {wanted.namespace}/{wanted.name}: {count(len(leaves), 'leaf switch')}")
    return text


def _type(wanted: GresConf, pod: _SlurmdPod) -> str:
    """Return the GPU type of a pod's NodeSet, whose name may begin with that of the release."""
    name = pod.metadata.labels.get(_NODE_SET, "")
    return wanted.types.get(name) or wanted.types.get(name.removeprefix("slurm-")) or "gpu"


def _correct(task: RunningTask, wanted: GresConf, path: str, live: _ConfigMapOfSlurm, nodes: dict[str, NodeGpus]) -> int:
    """Write gres.conf and restart the pods whose line is new. Return how many were restarted.

    The mark is written after the restarts, so that a task that was killed between both restarts every pod again.
    """
    text, before = text_of(nodes), nodes_of(live.data.get(KEY, ""))
    mark = digest(text)
    if live.data.get(KEY) == text and live.metadata.annotations.get(MARK) == mark:
        return 0
    if live.data.get(KEY) != text:
        task.kube.merge(path, {"data": {KEY: text}})
        task.did(f"changed {KEY} of ConfigMap {wanted.namespace}/{wanted.name}: {count(len(nodes), 'node')} with GPUs")
        old = [name for name in nodes if before.get(name) != nodes[name]]
    else:
        old = list(nodes)
    for name in old:
        task.kube.delete(f"/api/v1/namespaces/{wanted.namespace}/pods/{name}")
    task.did(f"restarted {count(len(old), 'pod')} of slurmd")
    task.kube.merge(path, {"metadata": {"annotations": {MARK: mark}}})
    return len(old)


def _resume(task: RunningTask, wanted: GresConf, topology: str) -> str:
    """Resume nodes that were drained for their GPUs, and have slurmctld read the topology.

    Return what was done, or a text that begins with `not resumed` and why.
    """
    if not wanted.login:
        return "no login pod: a person resumes drained nodes"
    seconds = int(timeouts.GRES_RESUME)
    words = ("env", "CHECK=gres", f"SECONDS_TO_RUN={seconds}", f"TOPOLOGY={topology.strip()}", "/bin/sh", "-c", wanted.script)
    try:
        output = task.kube.execute(wanted.namespace, wanted.login, wanted.container, words, timeouts.GRES_RESUME + 60)
    except (ApiError, Unreachable, NotUnderstood) as error:
        return f"{_RETRY}: {str(error)[:_MOST_OUTPUT]}"
    if output.code:
        return f"{_RETRY}: {(output.stderr or output.stdout).strip()[-_MOST_OUTPUT:]}"
    lines = output.stdout.splitlines()
    resumed = [line for line in lines if line.startswith("resumed ")]
    for line in resumed[:_MOST_OUTPUT]:
        task.did(line)
    left = next((f", {line[:_MOST_OUTPUT]}" for line in lines if line.startswith("still drained")), "")
    return f"{count(len(set(resumed)), 'node')} resumed{left}"
