"""Pod status as a kubelet reports it, for each behaviour of the containers; pure functions."""

from __future__ import annotations

from typing import Any

from workflows.rehearsal.simulator.api_kinds import Obj
from workflows.rehearsal.simulator.pod_programs import BlockedStart, Exit


def running(pod: Obj, at: str, *, ready: bool = True, restarts: int = 0) -> Obj:
    """Return the status of a pod whose containers have run since `at`."""
    state = {"running": {"startedAt": at}}
    return _status(pod, "Running", at, state, ready=ready, restarts=restarts)


def ended(pod: Obj, end: Exit, started: str, at: str, *, restarts: int = 0) -> Obj:
    """Return the status of a pod whose containers ended for good: phase Succeeded or Failed, with the message."""
    phase = "Succeeded" if end.code == 0 else "Failed"
    return _status(pod, phase, at, terminated(end, started, at), ready=False, restarts=restarts, done=True)


def crashed(pod: Obj, end: Exit, started: str, at: str, *, restarts: int) -> Obj:
    """Return the status of a pod in CrashLoopBackOff, whose last state is the crash."""
    message = f"back-off restarting failed container in pod {pod['metadata']['name']}"
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    status = _status(pod, "Running", at, state, ready=False, restarts=restarts)
    for entry in status["containerStatuses"]:
        entry["lastState"] = terminated(end, started, at)
    return status


def stuck(pod: Obj, why: BlockedStart, at: str) -> Obj:
    """Return the status of a Pending pod with a container that does not start."""
    waits: Obj = {"waiting": {"reason": why.reason, "message": why.message}} if why.reason else {"running": {"startedAt": at}}
    if not why.init:
        return _status(pod, "Pending", at, waits, ready=False)
    status = _status(pod, "Pending", at, {"waiting": {"reason": "PodInitializing"}}, ready=False)
    done = True
    for entry in status.get("initContainerStatuses", ()):
        if entry["name"] == why.init:
            done = False
            entry.update(state=waits, ready=False, started=not why.reason)
        elif not done:
            entry.update(state={"waiting": {"reason": "PodInitializing"}}, ready=False, started=False)
    status["conditions"] = _conditions(at, status["conditions"], initialized=False)
    return status


def terminated(end: Exit, started: str, at: str) -> dict[str, Any]:
    """Return a `terminated` container state."""
    reason = "Completed" if end.code == 0 else "Error"
    state = {"exitCode": end.code, "reason": reason, "startedAt": started, "finishedAt": at}
    return {"terminated": state | ({"message": end.text} if end.text else {})}


def started_at(pod: Obj) -> str:
    """Return when the running containers of a pod started, or an empty string."""
    for entry in pod.get("status", {}).get("containerStatuses") or ():
        if "running" in entry.get("state", {}):
            return str(entry["state"]["running"]["startedAt"])
    return ""


def _status(pod: Obj, phase: str, at: str, state: Obj, *, ready: bool, restarts: int = 0, done: bool = False) -> Obj:
    spec = pod["spec"]
    status: Obj = {
        "phase": phase,
        "startTime": pod.get("status", {}).get("startTime") or at,
        "containerStatuses": [_container(entry, dict(state), ready, restarts) for entry in spec["containers"]],
    }
    if spec.get("initContainers"):
        completed = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}}
        status["initContainerStatuses"] = [_container(entry, completed, True, 0) for entry in spec["initContainers"]]
    flag = "True" if ready else "False"
    reason = {} if ready else {"reason": "PodCompleted" if done and phase == "Succeeded" else "ContainersNotReady"}
    present = pod.get("status", {}).get("conditions") or [_condition("PodScheduled", "True", at)]
    kept = [entry for entry in present if entry["type"] == "PodScheduled"]
    status["conditions"] = [
        _condition("Initialized", "True", at),
        _condition("Ready", flag, at) | reason,
        _condition("ContainersReady", flag, at) | reason,
        *(entry | {"status": "True"} for entry in kept),
    ]
    return status


def _conditions(at: str, present: list[Obj], *, initialized: bool) -> list[Obj]:
    first = _condition("Initialized", "True" if initialized else "False", at)
    return [first if entry["type"] == "Initialized" else entry for entry in present]


def _condition(kind: str, status: str, at: str) -> Obj:
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": at}


def _container(entry: Obj, state: Obj, ready: bool, restarts: int) -> Obj:
    image = entry.get("image", "")
    return {
        "name": entry["name"],
        "image": image,
        "imageID": f"simulated://{image}" if "running" in state or "terminated" in state else "",
        "state": state,
        "lastState": {},
        "ready": ready,
        "started": "running" in state,
        "restartCount": restarts,
    }
