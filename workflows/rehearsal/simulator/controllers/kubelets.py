"""Simulated kubelets of all machines: they start the pods on their nodes, run the pods' programs, and report how they end."""

from __future__ import annotations

from workflows.rehearsal.simulator import virtual_clock
from workflows.rehearsal.simulator.api.api_kinds import NODES, PODS, Obj, Ref, has_condition, ref
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.simulated_pods import (
    BlockedStart,
    Exit,
    LongRunning,
    NeverStarted,
    ProgramError,
    behaviour,
)
from workflows.rehearsal.simulator.world import Changes, World

START = (1.0, 6.0)
"""Shortest and longest time in virtual seconds from a pod's binding to its running: sandbox, image check, start."""

BACKOFF = 10.0
BACKOFF_MAX = 300.0
"""Longest wait in virtual seconds before a crashed container restarts: 10, 20, 40 … 300, as with real kubelets."""


class Kubelet:
    """Simulated kubelet of every node of the fleet. Pods on other nodes are left to real kubelets."""

    name = "kubelet"
    kinds = (PODS, NODES)

    def __init__(self) -> None:
        self._stuck: dict[Ref, str] = {}

    def reconcile(self, world: World, changed: Changes) -> None:
        """Take the next step of each changed pod, and try again to start blocked pods on changed nodes."""
        refs = [ref(pod) for pod in world.objects(PODS)] if changed.everything else list(changed.refs(PODS))
        nodes = {at.name for at in changed.refs(NODES)}
        refs += [at for at, node in self._stuck.items() if changed.everything or node in nodes]
        for at in dict.fromkeys(refs):
            pod = world.find(PODS, at)
            if pod is None:
                self._stuck.pop(at, None)
            elif simulated_pods.node(pod) in world.fleet:
                self._look(world, pod)

    def _look(self, world: World, pod: Obj) -> None:
        at = ref(pod)
        key = f"kubelet/{at.namespace}/{at.name}"
        if "deletionTimestamp" in pod["metadata"]:
            world.later(f"{key}/end", 1, 3, lambda: self._end(world, at))
        elif simulated_pods.finished(pod):
            self._stuck.pop(at, None)
        # The node controller sets Ready to Unknown when a lease expires: no kubelet is left to report.
        elif has_condition(world.find(NODES, simulated_pods.node(pod)) or {}, "Ready", "Unknown"):
            self._lose(world, pod)
        elif simulated_pods.phase(pod) == "Pending" and at not in self._stuck:
            world.later(f"{key}/{pod['metadata']['uid']}/start", *START, lambda: self._start(world, at))
        elif at in self._stuck:
            self._start(world, at)
        else:
            self._run(world, pod)

    def _lose(self, world: World, pod: Obj) -> None:
        """Set a pod on a dead node to not Ready; its phase stays, because no kubelet reports for it."""
        if not simulated_pods.ready(pod):
            return
        conditions = [entry | {"status": "False"} if entry["type"] == "Ready" else entry for entry in pod["status"]["conditions"]]
        world.patch(PODS, pod, {"status": {"conditions": conditions}}, status=True)

    def _start(self, world: World, at: Ref) -> None:
        pod = world.find(PODS, at)
        if pod is None or simulated_pods.finished(pod) or "deletionTimestamp" in pod["metadata"] or not simulated_pods.node(pod):
            return
        program = behaviour(world, pod, simulated_pods.node(pod))
        if isinstance(program, BlockedStart):
            self._stuck[at] = simulated_pods.node(pod)
            since = pod.get("status", {}).get("startTime") or world.stamp()
            self._report(world, pod, simulated_pods.pending_status(pod, program, since))
            _log(world, pod, program.log, program.init)
            if program.event:
                reason, _, message = program.event.partition(": ")
                world.event(PODS, pod, reason, message, warning=True)
            return
        self._stuck.pop(at, None)
        if isinstance(program, NeverStarted):
            self._report(world, pod, simulated_pods.never_started(pod, program, world.stamp()))
            return
        if isinstance(program, Exit) and 1 < world.clock.quantum >= program.seconds:
            self._finish(world, pod, program, world.stamp())  # shorter than the clock's quantum: no observer could see it run
            return
        ready = program.ready if isinstance(program, LongRunning) else True
        self._report(world, pod, simulated_pods.running(pod, world.stamp(), ready=ready))
        if isinstance(program, LongRunning):
            _log(world, pod, program.log)

    def _run(self, world: World, pod: Obj) -> None:
        """Schedule the end of a started pod's program, follow its readiness, or restart it after a crash."""
        at = ref(pod)
        key = f"kubelet/{at.namespace}/{at.name}/{pod['metadata']['uid']}/{simulated_pods.restarts(pod)}"
        started = simulated_pods.started_at(pod)
        if not started:
            wait = min(BACKOFF * 2 ** (simulated_pods.restarts(pod) - 1), BACKOFF_MAX)
            world.later(f"{key}/restart", wait, wait, lambda: self._start(world, at))
            return
        program = behaviour(world, pod, simulated_pods.node(pod))
        if isinstance(program, Exit):
            left = program.duration(world.delay_scale) - (world.now - virtual_clock.parse_stamp(started))
            world.clock.schedule(f"{key}/exit", left, lambda: self._exit(world, at))
        elif isinstance(program, LongRunning) and program.ready != simulated_pods.ready(pod):
            self._report(world, pod, simulated_pods.running(pod, started, ready=program.ready))
        elif isinstance(program, BlockedStart):
            self._start(world, at)

    def _exit(self, world: World, at: Ref) -> None:
        pod = world.find(PODS, at)
        if pod is None or simulated_pods.finished(pod) or "deletionTimestamp" in pod["metadata"]:
            return
        program = behaviour(world, pod, simulated_pods.node(pod))
        started = simulated_pods.started_at(pod)
        if isinstance(program, Exit) and started:
            self._finish(world, pod, program, started)

    def _finish(self, world: World, pod: Obj, end: Exit, started: str) -> None:
        end = _effected(end)
        if end.code or world.sampled(simulated_pods.node(pod)):
            _log(world, pod, end.log)
        policy = pod["spec"].get("restartPolicy", "Always")
        over = policy == "Never" or (policy == "OnFailure" and end.code == 0)
        status = (simulated_pods.ended if over else simulated_pods.crashed)(pod, end, started, world.stamp())
        self._report(world, pod, status)

    def _end(self, world: World, at: Ref) -> None:
        pod = world.find(PODS, at)
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            world.delete_soon(PODS, at)

    def _report(self, world: World, pod: Obj, status: Obj) -> None:
        world.patch_soon(PODS, pod, {"status": status}, status=True)


def _effected(end: Exit) -> Exit:
    """Run a program's effect and return how the program ends: with code 1 if the effect raises ProgramError."""
    end = end.outcome() if end.outcome is not None else end
    if end.effect is None:
        return end
    try:
        end.effect()
    except ProgramError as error:
        return Exit(code=1, message=str(error), log=f"{end.log}{error}\n", seconds=end.seconds)
    return end


def _log(world: World, pod: Obj, text: str, container: str = "") -> None:
    world.log(pod, container or pod["spec"]["containers"][0]["name"], text)


ROLES = (Kubelet,)
