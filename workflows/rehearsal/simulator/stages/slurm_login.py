"""Stage slurm_login: who is logged in to simulated login pods of SUNK, and what disturbs their replacement."""

from __future__ import annotations

from collections.abc import Mapping

from workflows.rehearsal.simulator.api.api_kinds import PODS, STATEFUL_SETS, Obj, annotations_of, ref
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.container_commands import container_command
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, BlockedStart, LongRunning, pod_program
from workflows.rehearsal.simulator.machines.played_commands import PlayedOutput
from workflows.rehearsal.simulator.world import Changes, World

COMPONENT, LOGIN = "app.kubernetes.io/component", "login"
SESSIONS = "simulated/sessions"
"""Annotation of a login pod with the sessions on it, as `USER TERMINAL` between commas."""
RESTARTED = "kubectl.kubernetes.io/restartedAt"
"""Annotation of a pod template that `kubectl rollout restart` writes; with `OnDelete` the pods keep their revision."""
HELD = "backup.example.org/home"
"""Finalizer of a controller that is gone."""


class LoginDisturbances:
    """People and controllers around the login pods: with a fault, a restart is wanted, and the replacement does not succeed."""

    name = "slurm_login"
    kinds = (STATEFUL_SETS, PODS)

    def reconcile(self, world: World, _changed: Changes) -> None:
        """Ask for a restart of ready login pods under each fault, and hold the old ones under `slurm_login_stuck`."""
        if not (world.fault("slurm_login_stuck") or world.fault("slurm_login_crashes")):
            return
        for stateful_set in world.objects(STATEFUL_SETS):
            meta = stateful_set["spec"]["template"].get("metadata") or {}
            pods = world.owned(PODS, stateful_set["metadata"]["uid"])
            if (meta.get("labels") or {}).get(COMPONENT) != LOGIN or not all(map(simulated_pods.ready, pods)) or not pods:
                continue
            if RESTARTED not in (meta.get("annotations") or {}):
                if world.fault("slurm_login_stuck"):
                    for pod in pods:
                        world.patch(PODS, pod, {"metadata": {"finalizers": [HELD], "annotations": {SESSIONS: "alice pts/0"}}})
                change = {"spec": {"template": {"metadata": {"annotations": {RESTARTED: world.stamp()}}}}}
                world.patch(STATEFUL_SETS, ref(stateful_set), change)


@pod_program(COMPONENT, LOGIN)
def login(world: World, pod: Obj, _node: str) -> Behaviour:
    """Play a login pod: it runs, but for one of the new revision under `slurm_login_crashes`."""
    if world.fault("slurm_login_crashes") and RESTARTED in annotations_of(pod):
        return BlockedStart(reason="CrashLoopBackOff", message="sshd: no hostkeys available -- exiting.")
    return LongRunning()


@container_command("login-sessions")
def sessions(_world: World, pod: Obj, _variables: Mapping[str, str]) -> PlayedOutput:
    """Play `workflows/stages/scripts/login_sessions.sh`."""
    lines = [f"session {entry}" for entry in annotations_of(pod).get(SESSIONS, "").split(",") if entry]
    return PlayedOutput(stdout="".join(f"{line}\n" for line in (*lines, "end")), seconds=2)


ROLES = (LoginDisturbances,)
