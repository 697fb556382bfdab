"""Helpers that all simulated operators share: workloads that they create, nodes to look at, readiness of workloads."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping

from workflows.rehearsal.simulator.api.api_kinds import DAEMON_SETS, DEPLOYMENTS, NAMESPACES, NODES, Obj, ObjectKind, Ref
from workflows.rehearsal.simulator.charts.chart_installers import workload_spec
from workflows.rehearsal.simulator.world import Changes, World


def ensure_deployment(world: World, namespace: str, name: str, image: str) -> None:
    """Create or update a Deployment with one replica, whose pod carries the label `app: NAME`."""
    spec = {"replicas": 1} | workload_spec(name, {}, image, {})
    world.ensure(DEPLOYMENTS, {"metadata": {"name": name, "namespace": namespace, "labels": {"app": name}}, "spec": spec})


def ensure_daemon_set(
    world: World,
    owner: tuple[ObjectKind, Obj],
    namespace: str,
    name: str,
    *,
    selector: Mapping[str, str],
    init: Iterable[str] = (),
    image: str = "",
    tolerations: Iterable[Obj] = (),
    on_delete: bool = False,
    labels: Mapping[str, str] = types.MappingProxyType({}),
) -> Obj:
    """Create or update a DaemonSet and return it. Its pods carry the label `app: NAME`, and further `labels`.

    `owner` is kind and object of the custom resource that owns it; `init` names its init containers.
    """
    kind, obj = owner
    picture = image or f"simulated/{name}:1"
    pod: Obj = {
        "nodeSelector": dict(selector),
        "tolerations": list(tolerations),
        "containers": [{"name": name, "image": picture}],
    }
    if steps := [{"name": step, "image": picture} for step in init]:
        pod["initContainers"] = steps
    chosen = {"app": name}
    marks = {**chosen, **labels}
    spec: Obj = {"selector": {"matchLabels": chosen}, "updateStrategy": {"type": "OnDelete" if on_delete else "RollingUpdate"}}
    spec["template"] = {"metadata": {"labels": marks}, "spec": pod}
    meta = {"name": name, "namespace": namespace, "labels": marks, "ownerReferences": [kind.owner(obj)]}
    return world.ensure(DAEMON_SETS, {"metadata": meta, "spec": spec})


USUAL = ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},)
"""Tolerations of NVIDIA's DaemonSets on GPU nodes if values or custom resources name no others."""


def fleet_nodes(world: World, changed: Changes, *kinds: ObjectKind) -> Iterator[Obj]:
    """Yield the Nodes of the fleet that changed; all of them if an object of `kinds` changed, or everything is to be looked at."""
    names = [host.name for host in world.fleet] if changed.concern(*kinds) else [at.name for at in changed.refs(NODES)]
    for name in names:
        node = world.find(NODES, name)
        if node is not None and name in world.fleet:
            yield node


def serves_every_node(daemon_set: Obj | None) -> bool:
    """Return True if operators would call a DaemonSet ready: current status, no unavailable pod, even if it selects no node."""
    status = (daemon_set or {}).get("status") or {}
    observed = daemon_set is not None and status.get("observedGeneration", 0) >= daemon_set["metadata"].get("generation", 1)
    return observed and not status.get("numberUnavailable", 0)


def has_ready_pod(world: World, namespace: str, deployment: str) -> bool:
    """Return True if a Deployment has a ready pod. The simulated operator of that Deployment does nothing without one."""
    workload = world.find(DEPLOYMENTS, deployment, namespace)
    return workload is not None and bool((workload.get("status") or {}).get("readyReplicas"))


def play_other(world: World, fault: str, kind: ObjectKind, at: Ref, pod: Obj, labels: Mapping[str, str]) -> None:
    """Play a fault about a second instance: create its Deployment or DaemonSet, and delete that when the fault has ended."""
    if world.fault(fault):
        world.create(NAMESPACES, {"metadata": {"name": at.namespace}})
        template = {"metadata": {"labels": {"app": f"second-{at.name}"}}, "spec": pod}
        spec: Obj = {"selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}
        spec |= {"replicas": 1} if kind is DEPLOYMENTS else {}
        world.create(kind, {"metadata": {"name": at.name, "namespace": at.namespace, "labels": dict(labels)}, "spec": spec})
    elif world.find(kind, at) is not None:
        world.delete(kind, at)
