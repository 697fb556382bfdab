"""The DaemonSet controller: a pod on every eligible node, and complete counts even where pods are only sampled."""

from __future__ import annotations

import functools

from workflows.rehearsal.simulator import pods
from workflows.rehearsal.simulator.kinds import DAEMON_SETS, NODES, PODS, Obj, Ref, ref
from workflows.rehearsal.simulator.kubelet import START
from workflows.rehearsal.simulator.placement import admits
from workflows.rehearsal.simulator.programs import Run, behaviour
from workflows.rehearsal.simulator.role import Changed
from workflows.rehearsal.simulator.world import World

REVISION = "controller-revision-hash"


class _Set:
    """What is known of one DaemonSet: its eligible nodes, and on which of them its pod is ready."""

    def __init__(self, daemon_set: Obj, generation: int) -> None:
        self.uid = str(daemon_set["metadata"]["uid"])
        self.generation = generation
        self.revision = _revision(daemon_set)
        self.eligible: set[str] = set()
        self.ready: set[str] = set()
        self.real: set[str] = set()


class DaemonSets:
    """Plays the DaemonSet controller.

    In fleets above `SAMPLE_ABOVE` hosts only sampled nodes, and nodes where the pod would not simply run, get pod objects; on the
    others a pod is taken to be ready after the usual start, and is counted in the status.
    """

    name = "daemon_sets"
    kinds = (DAEMON_SETS, NODES, PODS)

    def __init__(self) -> None:
        self._sets: dict[Ref, _Set] = {}
        self._pods: dict[Ref, tuple[Ref, str]] = {}

    def reconcile(self, world: World, changed: Changed) -> None:
        """Evaluate changed nodes for every set, and every node for changed sets."""
        nodes = [node for at in changed.refs(NODES) if (node := world.find(NODES, at.name)) is not None]
        gone = {at.name for at in changed.refs(NODES)} - {node["metadata"]["name"] for node in nodes}
        touched = self._follow_pods(world, changed)
        for daemon_set in world.objects(DAEMON_SETS):
            at = ref(daemon_set)
            if "deletionTimestamp" in daemon_set["metadata"]:
                continue
            known, new = self._known(daemon_set)
            if new:
                self._roll(world, daemon_set, known.revision)
            for node in world.objects(NODES) if new or changed.everything else nodes:
                self._node(world, daemon_set, known, node)
            for name in gone:
                self._leave(world, at, known, name)
            if new or nodes or gone or at in touched or at in changed.refs(DAEMON_SETS) or changed.everything:
                _report(world, daemon_set, known, self._stale(world, at, known.revision))
        for at in [at for at in self._sets if world.find(DAEMON_SETS, at.name, at.namespace) is None]:
            del self._sets[at]

    def _known(self, daemon_set: Obj) -> tuple[_Set, bool]:
        meta = daemon_set["metadata"]
        at = ref(daemon_set)
        known = self._sets.get(at)
        if known is not None and known.uid == meta["uid"] and known.generation == meta.get("generation", 1):
            return known, False
        fresh = _Set(daemon_set, meta.get("generation", 1))
        if known is not None and known.uid == fresh.uid:
            fresh.ready, fresh.real = known.ready, known.real
        self._sets[at] = fresh
        return fresh, True

    def _roll(self, world: World, daemon_set: Obj, revision: str) -> None:
        """Replace pods of an older template, unless the set waits for somebody to delete them."""
        if (daemon_set["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            return
        at = ref(daemon_set)
        for pod_at in [pod_at for pod_at, (owner, _) in self._pods.items() if owner == at]:
            pod = world.find(PODS, pod_at.name, pod_at.namespace)
            if pod is not None and pod["metadata"]["labels"].get(REVISION) != revision:
                key = f"daemon_sets/{at.namespace}/{at.name}/{pod_at.name}/roll/{revision}"
                world.later(key, *START, functools.partial(world.delete_soon, PODS, pod_at))

    def _follow_pods(self, world: World, changed: Changed) -> set[Ref]:
        """Bring readiness up to date with changed pods; the sets concerned."""
        touched: set[Ref] = set()
        for at in [ref(pod) for pod in world.objects(PODS)] if changed.everything else changed.refs(PODS):
            pod = world.find(PODS, at.name, at.namespace)
            if pod is None:
                owner, node = self._pods.pop(at, (None, ""))
            else:
                owner, node = _owner(pod), pods.node(pod)
            if owner is None:
                continue
            if pod is not None:
                self._pods[at] = (owner, node)
            touched.add(owner)
            known = self._sets.get(owner) or self._adopt(world, owner)
            if known is None:
                continue
            if pod is None:
                known.ready.discard(node)
                known.real.discard(node)
                self._replace(world, owner, known, node)
                continue
            known.real.add(node)
            (known.ready.add if pods.ready(pod) else known.ready.discard)(node)
        return touched

    def _adopt(self, world: World, owner: Ref) -> _Set | None:
        daemon_set = world.find(DAEMON_SETS, owner.name, owner.namespace)
        if daemon_set is None:
            return None
        known = _Set(daemon_set, -1)
        self._sets[owner] = known
        return known

    def _replace(self, world: World, owner: Ref, known: _Set, node: str) -> None:
        """A pod of the set went away: its node gets a new one if it still should have one."""
        daemon_set, found = world.find(DAEMON_SETS, owner.name, owner.namespace), world.find(NODES, node)
        if daemon_set is not None and found is not None and "deletionTimestamp" not in daemon_set["metadata"]:
            self._node(world, daemon_set, known, found)

    def _node(self, world: World, daemon_set: Obj, known: _Set, node: Obj) -> None:
        name = node["metadata"]["name"]
        spec = daemon_set["spec"]["template"]["spec"]
        if name not in world.fleet or admits(node, spec, daemon=True):
            self._leave(world, ref(daemon_set), known, name)
            return
        known.eligible.add(name)
        if name in known.real:
            return
        pod = _pod(daemon_set, name, known.revision)
        what = behaviour(world, pod, name)
        if world.sampled(name) or not (isinstance(what, Run) and what.ready):
            known.real.add(name)
            known.ready.discard(name)
            world.create_soon(PODS, pod)
        elif name not in known.ready:
            at = ref(daemon_set)
            world.later(f"daemon_sets/{known.uid}/{name}", *START, lambda: self._ready(world, at, known.uid, name))

    def _ready(self, world: World, at: Ref, uid: str, node: str) -> None:
        """A pod that is not an object came up."""
        known = self._sets.get(at)
        if known is not None and known.uid == uid and node in known.eligible and node not in known.real:
            known.ready.add(node)
            world.touch(DAEMON_SETS, at)

    def _stale(self, world: World, at: Ref, revision: str) -> int:
        """How many of a set's pods are of an older template."""
        mine = (world.find(PODS, pod.name, pod.namespace) for pod, (owner, _) in self._pods.items() if owner == at)
        return sum(pod is not None and pod["metadata"]["labels"].get(REVISION) != revision for pod in mine)

    def _leave(self, world: World, at: Ref, known: _Set, node: str) -> None:
        """A node is not, or no longer, eligible."""
        known.eligible.discard(node)
        known.ready.discard(node)
        if node in known.real:
            known.real.discard(node)
            world.delete_soon(PODS, Ref(at.namespace, _pod_name(at.name, node)))


def _owner(pod: Obj) -> Ref | None:
    for entry in pod["metadata"].get("ownerReferences") or ():
        if entry.get("controller") and entry["kind"] == "DaemonSet":
            return Ref(pod["metadata"]["namespace"], entry["name"])
    return None


def _pod_name(daemon_set: str, node: str) -> str:
    return f"{daemon_set}-{pods.suffix(daemon_set, node)}"


def _pod(daemon_set: Obj, node: str, revision: str) -> Obj:
    """The set's pod on a node, bound at once. Its name depends on the node only."""
    labels = {REVISION: revision, "pod-template-generation": str(daemon_set["metadata"].get("generation", 1))}
    name = _pod_name(daemon_set["metadata"]["name"], node)
    return pods.from_template(daemon_set["spec"]["template"], name, DAEMON_SETS, daemon_set, labels=labels, node=node)


def _revision(daemon_set: Obj) -> str:
    return pods.suffix(daemon_set["spec"]["template"]) + pods.suffix("revision", daemon_set["spec"]["template"])


def _report(world: World, daemon_set: Obj, known: _Set, stale: int) -> None:
    desired = len(known.eligible)
    ready = len(known.ready & known.eligible)
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


ROLES = (DaemonSets,)
