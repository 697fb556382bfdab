"""The Deployment and StatefulSet controllers: pods for the replicas, and status with conditions."""

from __future__ import annotations

from collections.abc import Iterator

from workflows.rehearsal.simulator import pod_objects
from workflows.rehearsal.simulator.api_kinds import DEPLOYMENTS, PODS, STATEFUL_SETS, Obj, ObjectKind, ref
from workflows.rehearsal.simulator.role import Changes
from workflows.rehearsal.simulator.world import World


class WorkloadControllers:
    """The role that plays both controllers. A Deployment owns its pods without ReplicaSets; a new template replaces all pods at
    once.
    """

    name = "workloads"
    kinds = (DEPLOYMENTS, STATEFUL_SETS, PODS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Look at each workload that changed or whose pods changed."""
        for kind in (DEPLOYMENTS, STATEFUL_SETS):
            owners = _owners(world, changed, kind)
            for workload in world.objects(kind):
                if changed.everything or owners is None or ref(workload) in changed.refs(kind) or _key(workload) in owners:
                    _look(world, kind, workload)


def _owners(world: World, changed: Changes, kind: ObjectKind) -> set[tuple[str, str]] | None:
    """Return namespace and name of workloads that own changed pods, or None if a pod is gone and its owner unknown."""
    owners_found: set[tuple[str, str]] = set()
    for at in changed.refs(PODS):
        pod = world.find(PODS, at.name, at.namespace)
        if pod is None:
            return None
        owners = pod["metadata"].get("ownerReferences") or ()
        owners_found.update((at.namespace, entry["name"]) for entry in owners if entry["kind"] == kind.kind)
    return owners_found


def _key(workload: Obj) -> tuple[str, str]:
    return workload["metadata"]["namespace"], workload["metadata"]["name"]


def _look(world: World, kind: ObjectKind, workload: Obj) -> None:
    if "deletionTimestamp" in workload["metadata"]:
        return
    uid, space = workload["metadata"]["uid"], workload["metadata"]["namespace"]
    owned = {pod["metadata"]["name"]: pod for pod in world.select(PODS, space) if pod_objects.owner_uid(pod) == uid}
    wanted = dict(_wanted(kind, workload))
    for name, pod in owned.items():
        if name not in wanted or pod_objects.finished(pod):
            world.delete(PODS, pod)
    for name, pod in wanted.items():
        if name not in owned:
            owned[name] = world.create(PODS, pod)
    _report(world, kind, workload, [pod for name, pod in owned.items() if name in wanted])


def _wanted(kind: ObjectKind, workload: Obj) -> Iterator[tuple[str, Obj]]:
    spec, name = workload["spec"], workload["metadata"]["name"]
    replicas = spec.get("replicas")
    for number in range(1 if replicas is None else int(replicas)):
        if kind == STATEFUL_SETS:
            pod_name, labels = (
                f"{name}-{number}",
                {"statefulset.kubernetes.io/pod-name": f"{name}-{number}", "apps.kubernetes.io/pod-index": str(number)},
            )
        else:
            revision = pod_objects.suffix(spec["template"]) + pod_objects.suffix("revision", spec["template"])
            pod_name, labels = f"{name}-{revision}-{pod_objects.suffix(name, revision, number)}", {"pod-template-hash": revision}
        yield pod_name, pod_objects.from_template(spec["template"], pod_name, kind, workload, labels=labels)


def _report(world: World, kind: ObjectKind, workload: Obj, owned: list[Obj]) -> None:
    ready, replicas = sum(pod_objects.ready(pod) for pod in owned), len(owned)
    status: Obj = {
        "observedGeneration": workload["metadata"].get("generation", 1),
        "replicas": replicas,
        "readyReplicas": ready or None,
        "availableReplicas": (ready or None) if kind == DEPLOYMENTS else ready,
        "updatedReplicas": replicas or None,
    }
    if kind == DEPLOYMENTS:
        status["unavailableReplicas"] = replicas - ready or None
        status["conditions"] = _conditions(world, workload, ready >= replicas)
    else:
        status |= {"currentReplicas": replicas or None, "currentRevision": "simulated", "updateRevision": "simulated"}
    world.patch(kind, workload, {"status": status}, status=True)


def _conditions(world: World, workload: Obj, up: bool) -> list[Obj]:
    name = workload["metadata"]["name"]
    available = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    lacking = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    conditions = world.condition(workload, "Available", *(available if up else lacking))
    reason = "NewReplicaSetAvailable" if up else "ReplicaSetUpdated"
    return world.condition(
        {"status": {"conditions": conditions}}, "Progressing", "True", reason, f'Deployment "{name}" progresses.'
    )


ROLES = (WorkloadControllers,)
