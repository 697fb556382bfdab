"""The Deployment and StatefulSet controllers: pods for the replicas, and status with conditions."""

from __future__ import annotations

from collections.abc import Iterator

from workflows.rehearsal.simulator import pods
from workflows.rehearsal.simulator.kinds import DEPLOYMENTS, PODS, STATEFUL_SETS, Kind, Obj, ref
from workflows.rehearsal.simulator.role import Changed
from workflows.rehearsal.simulator.world import World


class Workloads:
    """Plays both controllers. A Deployment owns its pods itself, without ReplicaSets; a new template makes new pods at once."""

    name = "workloads"
    kinds = (DEPLOYMENTS, STATEFUL_SETS, PODS)

    def reconcile(self, world: World, changed: Changed) -> None:
        """Look at each workload that changed or whose pods did."""
        for kind in (DEPLOYMENTS, STATEFUL_SETS):
            owners = _owners(world, changed, kind)
            for workload in world.objects(kind):
                if changed.everything or owners is None or ref(workload) in changed.refs(kind) or _key(workload) in owners:
                    _look(world, kind, workload)


def _owners(world: World, changed: Changed, kind: Kind) -> set[tuple[str, str]] | None:
    """(namespace, name) of workloads that own changed pods; None when a pod is gone, which nobody owns any more."""
    found: set[tuple[str, str]] = set()
    for at in changed.refs(PODS):
        pod = world.find(PODS, at.name, at.namespace)
        if pod is None:
            return None
        owners = pod["metadata"].get("ownerReferences") or ()
        found.update((at.namespace, entry["name"]) for entry in owners if entry["kind"] == kind.kind)
    return found


def _key(workload: Obj) -> tuple[str, str]:
    return workload["metadata"]["namespace"], workload["metadata"]["name"]


def _look(world: World, kind: Kind, workload: Obj) -> None:
    if "deletionTimestamp" in workload["metadata"]:
        return
    uid, space = workload["metadata"]["uid"], workload["metadata"]["namespace"]
    owned = {pod["metadata"]["name"]: pod for pod in world.select(PODS, space) if pods.owner_uid(pod) == uid}
    wanted = dict(_wanted(kind, workload))
    for name, pod in owned.items():
        if name not in wanted or pods.finished(pod):
            world.delete(PODS, pod)
    for name, pod in wanted.items():
        if name not in owned:
            owned[name] = world.create(PODS, pod)
    _report(world, kind, workload, [pod for name, pod in owned.items() if name in wanted])


def _wanted(kind: Kind, workload: Obj) -> Iterator[tuple[str, Obj]]:
    spec, name = workload["spec"], workload["metadata"]["name"]
    replicas = spec.get("replicas")
    for number in range(1 if replicas is None else int(replicas)):
        if kind == STATEFUL_SETS:
            pod_name, labels = (
                f"{name}-{number}",
                {"statefulset.kubernetes.io/pod-name": f"{name}-{number}", "apps.kubernetes.io/pod-index": str(number)},
            )
        else:
            revision = pods.suffix(spec["template"]) + pods.suffix("revision", spec["template"])
            pod_name, labels = f"{name}-{revision}-{pods.suffix(name, revision, number)}", {"pod-template-hash": revision}
        yield pod_name, pods.from_template(spec["template"], pod_name, kind, workload, labels=labels)


def _report(world: World, kind: Kind, workload: Obj, owned: list[Obj]) -> None:
    ready, replicas = sum(pods.ready(pod) for pod in owned), len(owned)
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


ROLES = (Workloads,)
