"""Simulated controllers of DaemonSets, Deployments and StatefulSets. Status counts are complete even where pods are sampled."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from workflows.rehearsal.simulator.api.api_kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    STATEFUL_SETS,
    Obj,
    ObjectKind,
    Ref,
    labels_of,
    ref,
)
from workflows.rehearsal.simulator.controllers import network_plugins, simulated_pods
from workflows.rehearsal.simulator.controllers.kubelets import START
from workflows.rehearsal.simulator.controllers.scheduler import admits
from workflows.rehearsal.simulator.controllers.simulated_pods import LongRunning, behaviour
from workflows.rehearsal.simulator.world import Changes, World


class WorkloadControllers:
    """Simulated Deployment and StatefulSet controllers. There are no ReplicaSets; a new template replaces all pods at once."""

    name = "workloads"
    kinds = (DEPLOYMENTS, STATEFUL_SETS, PODS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Create and delete pods, and write the status, of each workload that changed or of which a pod changed."""
        for kind in (DEPLOYMENTS, STATEFUL_SETS):
            owners = _owners(world, changed, kind)
            concerned = {*changed.refs(kind), *(owners or ())}
            for workload in world.objects(kind):
                if changed.everything or owners is None or ref(workload) in concerned:
                    _look(world, kind, workload)


def _owners(world: World, changed: Changes, kind: ObjectKind) -> set[Ref] | None:
    """Return the workloads of this kind that own changed pods; None if a pod is gone, as its owner is then unknown."""
    workloads: set[Ref] = set()
    for at in changed.refs(PODS):
        pod = world.find(PODS, at)
        if pod is None:
            return None
        owners = pod["metadata"].get("ownerReferences") or ()
        workloads.update(Ref(at.namespace, entry["name"]) for entry in owners if entry["kind"] == kind.kind)
    return workloads


def _look(world: World, kind: ObjectKind, workload: Obj) -> None:
    if "deletionTimestamp" in workload["metadata"]:
        return
    owned = {pod["metadata"]["name"]: pod for pod in world.owned(PODS, workload["metadata"]["uid"])}
    wanted = dict(_wanted(kind, workload))
    waits = (workload["spec"].get("updateStrategy") or {}).get("type") == "OnDelete"
    for name, pod in owned.items():
        if name not in wanted or simulated_pods.finished(pod) or (_is_old(pod, wanted[name]) and not waits):
            world.delete(PODS, pod)
    for name, pod in wanted.items():
        if name not in owned:
            world.create_soon(PODS, pod)
            owned[name] = pod
    _report_workload(world, kind, workload, [pod for name, pod in owned.items() if name in wanted])


def _is_old(pod: Obj, wanted: Obj) -> bool:
    """Return True if a pod of a StatefulSet was made of another template than `wanted`."""
    return bool(labels_of(pod).get(REVISION) != labels_of(wanted).get(REVISION))


def _wanted(kind: ObjectKind, workload: Obj) -> Iterator[tuple[str, Obj]]:
    spec, name = workload["spec"], workload["metadata"]["name"]
    replicas = spec.get("replicas")
    for number in range(1 if replicas is None else int(replicas)):
        if kind == STATEFUL_SETS:
            pod_name = f"{name}-{number}"
            labels = {"statefulset.kubernetes.io/pod-name": pod_name, "apps.kubernetes.io/pod-index": str(number)}
            labels |= {REVISION: f"{name}-{_revision(workload)}"}
        else:
            revision = _revision(workload)
            pod_name, labels = f"{name}-{revision}-{simulated_pods.suffix(name, revision, number)}", {"pod-template-hash": revision}
        yield pod_name, simulated_pods.from_template(spec["template"], pod_name, kind, workload, labels=labels)


def _report_workload(world: World, kind: ObjectKind, workload: Obj, owned: list[Obj]) -> None:
    ready, replicas = sum(simulated_pods.ready(pod) for pod in owned), len(owned)
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
        newest = f"{workload['metadata']['name']}-{_revision(workload)}"
        revisions = [labels_of(pod).get(REVISION, newest) for pod in owned]
        old = next((revision for revision in revisions if revision != newest), newest)
        status["updatedReplicas"] = revisions.count(newest) or None
        status |= {"currentReplicas": revisions.count(old) or None, "currentRevision": old, "updateRevision": newest}
    world.patch_soon(kind, workload, {"status": status}, status=True)


def _conditions(world: World, workload: Obj, up: bool) -> list[Obj]:
    name = workload["metadata"]["name"]
    available = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    lacking = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    progress = ("True", "NewReplicaSetAvailable" if up else "ReplicaSetUpdated", f'Deployment "{name}" progresses.')
    return world.conditions(workload, ("Available", *(available if up else lacking)), ("Progressing", *progress))


REVISION = "controller-revision-hash"
NETWORK_PLUGINS = frozenset(Ref(namespace, name) for namespace, name, _ in network_plugins.CNI.values())
"""The DaemonSets of all network plugins."""


class _Set:
    """A DaemonSet as the controller remembers it: eligible nodes, nodes with a ready pod, nodes whose pod is an object."""

    def __init__(self, daemon_set: Obj, generation: int) -> None:
        self.uid = str(daemon_set["metadata"]["uid"])
        self.generation = generation
        self.revision = _revision(daemon_set)
        self.eligible: set[str] = set()
        self.ready: set[str] = set()
        self.real: set[str] = set()


class DaemonSets:
    """Simulated DaemonSet controller.

    In fleets above `SAMPLE_ABOVE` hosts, pod objects exist only on sampled nodes and on nodes where the pod would not simply run.
    On the other nodes a pod counts as ready after the usual start time. The pods of network plugins are objects on every node in
    any fleet, because stage rke2 judges each node by its own.
    """

    name = "daemon_sets"
    kinds = (DAEMON_SETS, NODES, PODS)

    def __init__(self) -> None:
        self._sets: dict[Ref, _Set] = {}
        self._pods: dict[Ref, tuple[Ref, str]] = {}
        self._owned: dict[Ref, dict[Ref, None]] = {}

    def reconcile(self, world: World, changed: Changes) -> None:
        """Create and delete pods on changed nodes for every DaemonSet, and on all nodes for a changed one; write the status."""
        nodes = [node for at in changed.refs(NODES) if (node := world.find(NODES, at.name)) is not None]
        gone = {at.name for at in changed.refs(NODES)} - {node["metadata"]["name"] for node in nodes}
        touched = self._follow_pods(world, changed)
        for daemon_set in world.objects(DAEMON_SETS):
            at = ref(daemon_set)
            if "deletionTimestamp" in daemon_set["metadata"]:
                continue
            state, new = self._known(daemon_set)
            if new:
                self._roll(world, daemon_set, state.revision)
            for node in world.objects(NODES) if new or changed.everything else nodes:
                self._node(world, daemon_set, state, node)
            for name in gone:
                self._leave(world, at, state, name)
            if new or nodes or gone or at in touched or at in changed.refs(DAEMON_SETS) or changed.everything:
                _report(world, daemon_set, state, self._stale(world, at, state.revision))
        for at in [at for at in self._sets if world.find(DAEMON_SETS, at) is None]:
            del self._sets[at]

    def _known(self, daemon_set: Obj) -> tuple[_Set, bool]:
        at, meta = ref(daemon_set), daemon_set["metadata"]
        state = self._sets.get(at)
        if state is not None and state.uid == meta["uid"] and state.generation == meta.get("generation", 1):
            return state, False
        fresh = _Set(daemon_set, meta.get("generation", 1))
        # A new generation keeps its pods until the rolling update replaces them.
        if state is not None and state.uid == fresh.uid:
            fresh.ready, fresh.real = state.ready, state.real
        self._sets[at] = fresh
        return fresh, True

    def _roll(self, world: World, daemon_set: Obj, revision: str) -> None:
        """Schedule the deletion of pods with an older template, unless the update strategy is OnDelete."""
        if (daemon_set["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            return
        at = ref(daemon_set)
        for pod_at in tuple(self._owned.get(at, ())):
            pod = world.find(PODS, pod_at)
            if pod is not None and pod["metadata"]["labels"].get(REVISION) != revision:
                key = f"daemon_sets/{at.namespace}/{at.name}/{pod_at.name}/roll/{revision}"
                world.later(key, *START, functools.partial(world.delete_soon, PODS, pod_at))

    def _follow_pods(self, world: World, changed: Changes) -> set[Ref]:
        """Record which changed pods are ready or gone, and return the DaemonSets that own them."""
        touched: set[Ref] = set()
        for at in [ref(pod) for pod in world.objects(PODS)] if changed.everything else changed.refs(PODS):
            pod = world.find(PODS, at)
            if pod is None:
                owner, node = self._pods.pop(at, (None, ""))
            else:
                owner, node = _owner(pod), simulated_pods.node(pod)
            if owner is None:
                continue
            if pod is not None:
                self._pods[at] = (owner, node)
                self._owned.setdefault(owner, {})[at] = None
            else:
                self._owned[owner].pop(at, None)
            touched.add(owner)
            state = self._sets.get(owner) or self._adopt(world, owner)
            if state is None:
                continue
            if pod is None:
                state.ready.discard(node)
                state.real.discard(node)
                self._replace(world, owner, state, node)
                continue
            state.real.add(node)
            (state.ready.add if simulated_pods.ready(pod) else state.ready.discard)(node)
        return touched

    def _adopt(self, world: World, owner: Ref) -> _Set | None:
        daemon_set = world.find(DAEMON_SETS, owner)
        if daemon_set is not None:
            self._sets[owner] = _Set(daemon_set, -1)
        return self._sets.get(owner)

    def _replace(self, world: World, owner: Ref, state: _Set, node: str) -> None:
        """Create a new pod in place of a removed one, if its node is still eligible."""
        daemon_set, node_object = world.find(DAEMON_SETS, owner), world.find(NODES, node)
        if daemon_set is not None and node_object is not None and "deletionTimestamp" not in daemon_set["metadata"]:
            self._node(world, daemon_set, state, node_object)

    def _node(self, world: World, daemon_set: Obj, state: _Set, node: Obj) -> None:
        name = node["metadata"]["name"]
        spec = daemon_set["spec"]["template"]["spec"]
        if name not in world.fleet or admits(node, spec, daemon=True):
            self._leave(world, ref(daemon_set), state, name)
            return
        state.eligible.add(name)
        if name in state.real:
            return
        pod = _pod(daemon_set, name, state.revision)
        program = behaviour(world, pod, name)
        is_network = ref(daemon_set) in NETWORK_PLUGINS
        if is_network or world.sampled(name) or not (isinstance(program, LongRunning) and program.ready):
            state.real.add(name)
            state.ready.discard(name)
            world.create_soon(PODS, pod)
        elif name not in state.ready:
            at = ref(daemon_set)
            world.later(f"daemon_sets/{state.uid}/{name}", *START, lambda: self._ready(world, at, state.uid, name))

    def _ready(self, world: World, at: Ref, uid: str, node: str) -> None:
        """Count the pod on a node outside the sample as ready; it is called after the usual start time."""
        state = self._sets.get(at)
        if state is not None and state.uid == uid and node in state.eligible and node not in state.real:
            state.ready.add(node)
            world.touch(DAEMON_SETS, at)

    def _stale(self, world: World, at: Ref, revision: str) -> int:
        """Return how many pod objects of a DaemonSet have an older template than `revision`."""
        mine = (world.find(PODS, pod) for pod in self._owned.get(at, ()))
        return sum(pod is not None and pod["metadata"]["labels"].get(REVISION) != revision for pod in mine)

    def _leave(self, world: World, at: Ref, state: _Set, node: str) -> None:
        """Count a node as not eligible for a DaemonSet, and delete its pod if that is an object."""
        state.eligible.discard(node)
        state.ready.discard(node)
        if node in state.real:
            state.real.discard(node)
            world.delete_soon(PODS, Ref(at.namespace, _pod_name(at.name, node)))


def _owner(pod: Obj) -> Ref | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    names = (entry["name"] for entry in owners if entry.get("controller") and entry["kind"] == "DaemonSet")
    return next((Ref(pod["metadata"]["namespace"], name) for name in names), None)


def _pod_name(daemon_set: str, node: str) -> str:
    return f"{daemon_set}-{simulated_pods.node_suffix(daemon_set, node)}"


def _pod(daemon_set: Obj, node: str, revision: str) -> Obj:
    """Return a new pod of the DaemonSet, assigned to a node. Its name depends on DaemonSet and node only."""
    labels = {REVISION: revision, "pod-template-generation": str(daemon_set["metadata"].get("generation", 1))}
    name = _pod_name(daemon_set["metadata"]["name"], node)
    return simulated_pods.from_template(daemon_set["spec"]["template"], name, DAEMON_SETS, daemon_set, labels=labels, node=node)


def _revision(workload: Obj) -> str:
    template = workload["spec"]["template"]
    return simulated_pods.suffix(template) + simulated_pods.suffix("revision", template)


def _report(world: World, daemon_set: Obj, state: _Set, stale: int) -> None:
    desired = len(state.eligible)
    ready = len(state.ready & state.eligible)
    status = {
        "currentNumberScheduled": desired,
        "desiredNumberScheduled": desired,
        "numberMisscheduled": 0,
        "numberReady": ready,
        "numberAvailable": ready or None,
        "numberUnavailable": desired - ready or None,
        "updatedNumberScheduled": desired - stale or None,
        "observedGeneration": daemon_set["metadata"].get("generation", 1),
    }
    world.patch_soon(DAEMON_SETS, daemon_set, {"status": status}, status=True)


ROLES = (DaemonSets, WorkloadControllers)
