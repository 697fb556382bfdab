"""Simulated pods: their objects, the programs that stage modules register by pod label, and status as a kubelet reports it."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from workflows.rehearsal.faults.fault_registry import find_fault
from workflows.rehearsal.simulator.api_kinds import Obj, ObjectKind, has_condition, labels_of
from workflows.rehearsal.simulator.world import World

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for random name suffixes."""


def suffix(*parts: object) -> str:
    """Return five letters that look like Kubernetes' random suffix but depend on the parts only."""
    number = int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")
    return "".join(ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(5))


def from_template(template: Obj, name: str, kind: ObjectKind, owner: Obj, *, labels: Obj | None = None, node: str = "") -> Obj:
    """Return a pod owned by the controller `owner`, already bound if `node` is given."""
    meta = template.get("metadata") or {}
    pod: Obj = {
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": (meta.get("labels") or {}) | (labels or {}),
            "ownerReferences": [kind.owner(owner)],
        },
        "spec": dict(template["spec"]),
    }
    if meta.get("annotations"):
        pod["metadata"]["annotations"] = dict(meta["annotations"])
    if node:
        pod["spec"]["nodeName"] = node
    return pod


def owner_uid(pod: Obj) -> str:
    """Return the UID of the controller that owns a pod, or an empty string."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((entry["uid"] for entry in owners if entry.get("controller")), "")


def phase(pod: Obj) -> str:
    """Return a pod's phase; `Pending` if no kubelet has reported yet."""
    return str(pod.get("status", {}).get("phase") or "Pending")


def finished(pod: Obj) -> bool:
    """Return True if all containers have ended for good."""
    return phase(pod) in ("Succeeded", "Failed")


def ready(pod: Obj) -> bool:
    """Return True if the pod's Ready condition is true."""
    return has_condition(pod, "Ready")


def restarts(pod: Obj) -> int:
    """Return the number of restarts of all containers together."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return sum(entry.get("restartCount", 0) for entry in statuses)


def node(pod: Obj) -> str:
    """Return the name of the pod's node, or an empty string."""
    return str(pod["spec"].get("nodeName") or "")


CHECK = "bringup/check"
"""Label of the pods of functional checks; its value names the check."""

MAX_MESSAGE = 4096
"""Bytes of a termination message that a kubelet keeps."""


class ProgramError(Exception):
    """A failure inside an effect: the program ends with code 1, and the text is its message and last line of output."""


class LongRunning(Struct, frozen=True, kw_only=True):
    """A program that runs until the pod is deleted. With `ready` false its readiness probes fail."""

    ready: bool = True
    log: str = ""


class Exit(Struct, frozen=True, kw_only=True):
    """A program that ends after `seconds`.

    `message` is the termination message (a dict becomes JSON), `log` the container's output. `effect` runs once at the end, before
    the pod shows it, and holds every change that the program makes in the cluster.
    """

    code: int = 0
    message: str | dict[str, Any] = ""
    log: str = ""
    seconds: float = 3.0
    effect: Callable[[], None] | None = None

    @property
    def text(self) -> str:
        """The termination message as the kubelet stores it."""
        text = self.message if isinstance(self.message, str) else msgspec.json.encode(self.message).decode()
        return text.encode()[:MAX_MESSAGE].decode(errors="ignore")


class BlockedStart(Struct, frozen=True, kw_only=True):
    """A pod that does not start: a container waits with this reason (`ImagePullBackOff`, `CreateContainerError`, …).

    `init` names the init container that does not end; with an empty `reason` it runs for ever. The program is asked again when the
    pod's node changes, or when hosts or faults change.
    """

    reason: str = ""
    message: str = ""
    init: str = ""
    log: str = ""


Behaviour = LongRunning | Exit | BlockedStart
Program = Callable[[World, Obj, str], Behaviour]
"""A function from the world, the pod (or a DaemonSet's template as a pod) and its node to a behaviour. It must change nothing."""

_PROGRAMS: dict[tuple[str, str], Program] = {}
ANY = "*"


def pod_program(label: str, value: str = ANY) -> Callable[[Program], Program]:
    """Register the program of pods with this label. `*` takes any value, after exact values were tried."""

    def register(program: Program) -> Program:
        _PROGRAMS[label, value] = program
        return program

    return register


def check(name: str) -> Callable[[Program], Program]:
    """Register the program of a functional check's containers."""
    return pod_program(CHECK, name)


def blocked_by(fault: str, label: str, value: str, message: str, reason: str = "CrashLoopBackOff") -> None:
    """Register pods with this label: they run, or do not start while the fault hits them.

    A fault with default victims is asked for about the pod's node, any other about the whole cluster.
    """

    def program(world: World, _pod: Obj, node: str) -> Behaviour:
        hit = world.fault(fault, node if find_fault(fault).node else "")
        return BlockedStart(reason=reason, message=message) if hit else LongRunning()

    pod_program(label, value)(program)


def behaviour(world: World, pod: Obj, node: str) -> Behaviour:
    """Return a pod's behaviour on a node. Without a program, a pod that may end succeeds and any other runs."""
    labels = labels_of(pod)
    for pair in labels.items():
        if pair in _PROGRAMS:
            return _PROGRAMS[pair](world, pod, node)
    for label in labels:
        if (label, ANY) in _PROGRAMS:
            return _PROGRAMS[label, ANY](world, pod, node)
    return LongRunning() if pod["spec"].get("restartPolicy", "Always") == "Always" else Exit()


MAX_PACKED = 3800
"""Characters that check scripts pack at most, because a termination message holds 4,096 bytes."""

LOG_CHUNK = 2_000_000
"""Characters of one log write: API servers take at most 3 MiB in a request."""


def pack(text: str) -> str:
    """Return gzip in base64 as check scripts pack their output, or an empty string if it is too long."""
    packed = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return packed if len(packed) <= MAX_PACKED else ""


def keep_log(world: World, pod: Obj, text: str) -> None:
    """Write a long log in chunks, because requests are limited; for programs that leave `Exit.log` empty."""
    for start in range(0, len(text), LOG_CHUNK):
        world.log(pod, pod["spec"]["containers"][0]["name"], text[start : start + LOG_CHUNK])


def environment(pod: Obj) -> dict[str, str]:
    """Return the plain environment variables of a pod's first container."""
    entries = pod["spec"]["containers"][0].get("env") or ()
    return {entry["name"]: entry["value"] for entry in entries if "value" in entry}


def running(pod: Obj, at: str, *, ready: bool = True) -> Obj:
    """Return the status of a pod whose containers have run since `at`."""
    return _status(pod, "Running", at, {"running": {"startedAt": at}}, ready=ready, restarts=restarts(pod))


def ended(pod: Obj, end: Exit, started: str, at: str) -> Obj:
    """Return the status of a pod whose containers ended for good: phase Succeeded or Failed, with the message."""
    phase = "Succeeded" if end.code == 0 else "Failed"
    return _status(pod, phase, at, terminated(end, started, at), ready=False, restarts=restarts(pod))


def crashed(pod: Obj, end: Exit, started: str, at: str) -> Obj:
    """Return the status of a pod in CrashLoopBackOff after one more restart; its last state is the crash."""
    message = f"back-off restarting failed container in pod {pod['metadata']['name']}"
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    status = _status(pod, "Running", at, state, ready=False, restarts=restarts(pod) + 1)
    for entry in status["containerStatuses"]:
        entry["lastState"] = terminated(end, started, at)
    return status


def pending_status(pod: Obj, why: BlockedStart, at: str) -> Obj:
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
    status["conditions"][0] = _condition("Initialized", "False", at)
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


def _status(pod: Obj, phase: str, at: str, state: Obj, *, ready: bool, restarts: int = 0) -> Obj:
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
    reason = {} if ready else {"reason": "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"}
    present = pod.get("status", {}).get("conditions") or [_condition("PodScheduled", "True", at)]
    status["conditions"] = [
        _condition("Initialized", "True", at),
        _condition("Ready", flag, at) | reason,
        _condition("ContainersReady", flag, at) | reason,
        *(entry | {"status": "True"} for entry in present if entry["type"] == "PodScheduled"),
    ]
    return status


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
