"""All kubelets of the simulated machines: bring bound pods up, run their programs, report how they end."""

from __future__ import annotations

from workflows.rehearsal.simulator import clock, pods, podstatus
from workflows.rehearsal.simulator.kinds import NODES, PODS, Obj, Ref, ref
from workflows.rehearsal.simulator.programs import Behaviour, Exit, ProgramError, Run, Stuck, behaviour
from workflows.rehearsal.simulator.role import Changed
from workflows.rehearsal.simulator.world import World

START = (1.0, 6.0)
"""Virtual seconds from binding to running: sandbox, image check, start."""

BACKOFF = 10.0
BACKOFF_MAX = 300.0
"""A crashed container waits 10, 20, 40 … 300 s before it is started again, as kubelets do."""


class Kubelet:
    """Plays every node of the fleet; pods on other nodes belong to real kubelets."""

    name = "kubelet"
    kinds = (PODS, NODES)

    def __init__(self) -> None:
        self._stuck: dict[Ref, str] = {}

    def reconcile(self, world: World, changed: Changed) -> None:
        """Move each changed pod one step on, and ask again what pods do that are stuck on a changed node."""
        refs = [ref(pod) for pod in world.objects(PODS)] if changed.everything else list(changed.refs(PODS))
        nodes = {at.name for at in changed.refs(NODES)}
        refs += [at for at, node in self._stuck.items() if changed.everything or node in nodes]
        for at in dict.fromkeys(refs):
            pod = world.find(PODS, at.name, at.namespace)
            if pod is None:
                self._stuck.pop(at, None)
            elif pods.node(pod) in world.fleet:
                self._look(world, pod)

    def _look(self, world: World, pod: Obj) -> None:
        at = ref(pod)
        key = f"kubelet/{at.namespace}/{at.name}"
        if "deletionTimestamp" in pod["metadata"]:
            world.later(f"{key}/end", 1, 3, lambda: self._end(world, at))
        elif pods.finished(pod):
            self._stuck.pop(at, None)
        elif _node_lost(world, pods.node(pod)):
            self._lose(world, pod)
        elif pods.phase(pod) == "Pending" and at not in self._stuck:
            world.later(f"{key}/{pod['metadata']['uid']}/start", *START, lambda: self._start(world, at))
        elif at in self._stuck:
            self._start(world, at)
        else:
            self._run(world, pod)

    def _lose(self, world: World, pod: Obj) -> None:
        """Nobody reports for the pods of a dead node: they keep their phase and lose their readiness."""
        if not pods.ready(pod):
            return
        conditions = [entry | {"status": "False"} if entry["type"] == "Ready" else entry for entry in pod["status"]["conditions"]]
        world.patch(PODS, pod, {"status": {"conditions": conditions}}, status=True)

    def _start(self, world: World, at: Ref) -> None:
        pod = world.find(PODS, at.name, at.namespace)
        if pod is None or pods.finished(pod) or "deletionTimestamp" in pod["metadata"] or not pods.node(pod):
            return
        what = behaviour(world, pod, pods.node(pod))
        if isinstance(what, Stuck):
            self._stuck[at] = pods.node(pod)
            since = pod.get("status", {}).get("startTime") or world.stamp()
            self._report(world, pod, podstatus.stuck(pod, what, since))
            _log(world, pod, what.log, what.init)
            return
        self._stuck.pop(at, None)
        if isinstance(what, Exit) and 1 < world.clock.quantum >= what.seconds:
            self._finish(world, pod, what, world.stamp())  # over within this instant: nobody could see it run
            return
        ready = what.ready if isinstance(what, Run) else True
        self._report(world, pod, podstatus.running(pod, world.stamp(), ready=ready, restarts=pods.restarts(pod)))
        if isinstance(what, Run):
            _log(world, pod, what.log)

    def _run(self, world: World, pod: Obj) -> None:
        """A pod that runs: schedule its end, follow its readiness, or start it again after a crash."""
        at = ref(pod)
        key = f"kubelet/{at.namespace}/{at.name}/{pod['metadata']['uid']}/{pods.restarts(pod)}"
        started = podstatus.started_at(pod)
        if not started:
            wait = min(BACKOFF * 2 ** (pods.restarts(pod) - 1), BACKOFF_MAX)
            world.later(f"{key}/restart", wait, wait, lambda: self._start(world, at))
            return
        what = behaviour(world, pod, pods.node(pod))
        if isinstance(what, Exit):
            left = max(0.0, what.seconds - (world.now - clock.parse(started)))
            world.later(f"{key}/exit", left, left, lambda: self._exit(world, at))
        elif isinstance(what, Run) and what.ready != pods.ready(pod):
            self._report(world, pod, podstatus.running(pod, started, ready=what.ready, restarts=pods.restarts(pod)))
        elif isinstance(what, Stuck):
            self._start(world, at)

    def _exit(self, world: World, at: Ref) -> None:
        pod = world.find(PODS, at.name, at.namespace)
        if pod is None or pods.finished(pod) or "deletionTimestamp" in pod["metadata"]:
            return
        what: Behaviour = behaviour(world, pod, pods.node(pod))
        started = podstatus.started_at(pod)
        if not isinstance(what, Exit) or not started:
            return
        self._finish(world, pod, what, started)

    def _finish(self, world: World, pod: Obj, what: Exit, started: str) -> None:
        what = _effected(what)
        if what.code or world.sampled(pods.node(pod)):
            _log(world, pod, what.log)
        policy = pod["spec"].get("restartPolicy", "Always")
        if policy == "Never" or (policy == "OnFailure" and what.code == 0):
            self._report(world, pod, podstatus.ended(pod, what, started, world.stamp(), restarts=pods.restarts(pod)))
        else:
            self._report(world, pod, podstatus.crashed(pod, what, started, world.stamp(), restarts=pods.restarts(pod) + 1))

    def _end(self, world: World, at: Ref) -> None:
        pod = world.find(PODS, at.name, at.namespace)
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            world.delete_soon(PODS, at)

    def _report(self, world: World, pod: Obj, status: Obj) -> None:
        world.patch_soon(PODS, pod, {"status": status}, status=True)


def _effected(end: Exit) -> Exit:
    """Run a program's effect; what it raises as ProgramError is how the program ends."""
    if end.effect is None:
        return end
    try:
        end.effect()
    except ProgramError as error:
        return Exit(code=1, message=str(error), log=f"{end.log}{error}\n", seconds=end.seconds)
    return end


def _node_lost(world: World, name: str) -> bool:
    node = world.find(NODES, name)
    conditions = (node or {}).get("status", {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "Unknown" for entry in conditions)


def _log(world: World, pod: Obj, text: str, container: str = "") -> None:
    world.log(pod, container or pod["spec"]["containers"][0]["name"], text)


ROLES = (Kubelet,)
