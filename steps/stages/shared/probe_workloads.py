"""Reads nodes, pods, Deployments, StatefulSets and DaemonSets, and tells why pods are not ready."""

import re
from collections.abc import Callable, Iterable, Sequence

from steps.contract.objects.charts import Trouble, Workload
from steps.contract.plain_text import truncate
from steps.stages.shared.kube_objects import DeployedWorkload, Node, Pod
from steps.stages.shared.kube_reader import KubeReader, Scope

RESOURCES = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
MESSAGE = 300
"""Most characters of the message that says why a pod is not ready."""
MOST_TROUBLES = 16
"""Most pods of a namespace whose reason for not being ready is kept: hundreds of copies would bury the cause."""
Keep = Callable[[DeployedWorkload], bool]


def read(
    kube: KubeReader, namespace: str, keep: Keep, kinds: Iterable[str] = tuple(RESOURCES), on_delete: Sequence[str] = ()
) -> tuple[Workload, ...]:
    """Return the workloads of a namespace for which `keep` returns True, sorted by kind and name.

    `on_delete` names StatefulSets with that update strategy whose pods of an old revision count as updated.
    """
    workloads = (
        _workload(kind, raw, on_delete)
        for kind in kinds
        for raw in kube.list(f"/apis/apps/v1/namespaces/{namespace}/{RESOURCES[kind]}", DeployedWorkload) or ()
        if keep(raw)
    )
    return tuple(sorted(workloads, key=lambda entry: (entry.kind, entry.name)))


def nodes(kube: KubeReader) -> tuple[Node, ...]:
    """Return every node of the cluster."""
    return kube.list("/api/v1/nodes", Node) or ()


def expected_nodes(kube: KubeReader, scope: Scope) -> tuple[Node, ...]:
    """Return those of the expected nodes that are registered in the cluster."""
    wanted = frozenset(scope.nodes)
    return tuple(node for node in nodes(kube) if node.metadata.name in wanted)


def pods(kube: KubeReader, namespace: str, labels: str = "") -> tuple[Pod, ...]:
    """Return the pods of a namespace, sorted by name."""
    return tuple(
        sorted(kube.list(f"/api/v1/namespaces/{namespace}/pods", Pod, labels=labels) or (), key=lambda pod: pod.metadata.name)
    )


def troubles(pods: Iterable[Pod]) -> tuple[Trouble, ...]:
    """Return the reason of each pod that is not ready. Pods that are only starting have none."""
    known = (trouble(pod) for pod in pods if not pod.ready and pod.status.phase != "Succeeded")
    return tuple(entry for entry in known if entry is not None)[:MOST_TROUBLES]


def trouble(pod: Pod) -> Trouble | None:
    """Return why a pod is not ready; None if it is ready or shows no reason."""
    name, node = pod.metadata.name, pod.spec.node_name
    for entry in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if (problem := entry.problem) is not None:
            cause = problem.reason or "Error"
            return Trouble(pod=name, node=node, container=entry.name, reason=cause, message=truncate(problem.message, MESSAGE))
        # a container in a crash loop runs between its crashes and shows no problem then
        if (last := entry.restarted_after) is not None:
            cause = last.message or f"exit code {last.exit_code} before restart {entry.restart_count}"
            return Trouble(
                pod=name, node=node, container=entry.name, reason=last.reason or "Error", message=truncate(cause, MESSAGE)
            )
    if pod.status.phase == "Failed":
        return Trouble(pod=name, node=node, reason=pod.status.reason or "Failed", message=truncate(pod.status.message, MESSAGE))
    if (refused := pod.unscheduled) is not None:
        return Trouble(pod=name, reason=refused.reason, message=truncate(refused.message, MESSAGE))
    return None


def _workload(kind: str, raw: DeployedWorkload, on_delete: Sequence[str]) -> Workload:
    status, daemon = raw.status, kind == "DaemonSet"
    containers = raw.pod.containers
    # pods of such a StatefulSet keep their revision until somebody deletes them: a gate of the stage that does so compares it
    kept = kind == "StatefulSet" and raw.metadata.name in on_delete and raw.spec.update_strategy.type == "OnDelete"
    return Workload(
        kind=kind,
        name=raw.metadata.name,
        # a DaemonSet's desired number is the nodes that it selects, only its status has it
        desired=status.desired_number_scheduled if daemon else raw.spec.replicas,
        updated=status.updated_number_scheduled if daemon else status.replicas if kept else status.updated_replicas,
        ready=status.number_ready if daemon else status.ready_replicas,
        generation=raw.metadata.generation,
        observed=status.observed_generation,
        image=containers[0].image if containers else "",
    )


def named_daemon_sets(kube: KubeReader, keep: Keep) -> tuple[str, ...]:
    """Return the DaemonSets in all namespaces for which `keep` returns True, as `NAMESPACE/NAME`."""
    daemons = kube.list("/apis/apps/v1/daemonsets", DeployedWorkload) or ()
    return tuple(sorted(f"{raw.metadata.namespace}/{raw.metadata.name}" for raw in daemons if keep(raw)))


_NFD_IMAGE = re.compile(r"(?:^|[/-])node-feature-discovery(?:-[\w.]+)*(?=[:@]|$)")


def is_nfd_worker(raw: DeployedWorkload) -> bool:
    """Return True for the DaemonSet of NFD's workers, by its image, its name or its labels.

    The image also has the master and the topology updater, which write no labels of features.
    """
    meta = raw.metadata
    runs = [entry for entry in raw.pod.containers if _NFD_IMAGE.search(entry.image)]
    others = ("topology-updater", "nfd-master", "nfd-gc")
    if any(not any(word in " ".join((*entry.command, *entry.args, meta.name)) for word in others) for entry in runs):
        return True
    named = "node-feature-discovery-worker" in meta.name or "nfd-worker" in meta.name
    labelled = meta.labels.get("app.kubernetes.io/name") == "node-feature-discovery" and meta.labels.get("role") == "worker"
    return named or labelled
