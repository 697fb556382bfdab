"""Simulated pods: their objects, the programs that stage modules register by pod label, and their status as kubelets report it."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from workflows.rehearsal.faults.fault_registry import find_fault
from workflows.rehearsal.simulator.api.api_kinds import Obj, ObjectKind, has_condition, labels_of
from workflows.rehearsal.simulator.world import World

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of the random suffixes in Kubernetes' names."""


def suffix(*parts: object, length: int = 5) -> str:
    """Return characters that look like Kubernetes' random suffix but depend only on `parts`; five, as Kubernetes has them."""
    number = int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")
    return "".join(ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(length))


def node_suffix(*parts: object) -> str:
    """Return a suffix for the pod that each node has of a workload.

    Of five characters some would be equal among 10,000 nodes. Kubernetes then draws another one; here a node would get no pod.
    """
    return suffix(*parts, length=8)


def from_template(template: Obj, name: str, kind: ObjectKind, owner: Obj, *, labels: Obj | None = None, node: str = "") -> Obj:
    """Return a new pod from a pod template, owned by `owner`, an object of `kind`. With `node` it is assigned already."""
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


def phase(pod: Obj) -> str:
    """Return a pod's phase; `Pending` if no kubelet has reported one."""
    return str(pod.get("status", {}).get("phase") or "Pending")


def finished(pod: Obj) -> bool:
    """Return True if the pod's phase is Succeeded or Failed."""
    return phase(pod) in ("Succeeded", "Failed")


def ready(pod: Obj) -> bool:
    """Return True if the pod's Ready condition is true."""
    return has_condition(pod, "Ready")


def restarts(pod: Obj) -> int:
    """Return how often the pod's containers have restarted, all together."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return sum(entry.get("restartCount", 0) for entry in statuses)


def node(pod: Obj) -> str:
    """Return the name of the node to which a pod is assigned; empty if it waits for one."""
    return str(pod["spec"].get("nodeName") or "")


CHECK = "bringup/check"
"""Label of the pods of functional checks; its value is the check's name."""

MAX_MESSAGE = 4096
"""Largest termination message in bytes; a kubelet cuts off the rest."""


class ProgramError(Exception):
    """Raised by a program's effect to fail: the program ends with code 1, and the text is its message and last line of output."""


class LongRunning(Struct, frozen=True, kw_only=True):
    """The behaviour of a pod that runs until it is deleted. With `ready` false its readiness probes fail; `log` is its output."""

    ready: bool = True
    log: str = ""


class Exit(Struct, frozen=True, kw_only=True):
    """The behaviour of a pod whose program ends with `code` after `seconds` virtual seconds.

    `message` is the termination message (a dict becomes JSON), `log` the container's output. `before` is the termination message of
    its init containers, `image_id` the image that the node has pulled. `effect` runs once at the end, before the pod shows it, and
    makes every change in the cluster that the program makes. `outcome` takes the place of everything but the times: it is called
    once the program ends, because the output of a test takes milliseconds to make and a pod is looked at three times. The delay
    scale applies to `seconds`, yet the program runs for `least` virtual seconds at any scale: a program that holds a device holds
    it for some time.
    """

    code: int = 0
    message: str | dict[str, Any] = ""
    before: str | dict[str, Any] = ""
    image_id: str = ""
    log: str = ""
    seconds: float = 3.0
    least: float = 0.0
    effect: Callable[[], None] | None = None
    outcome: Callable[[], Exit] | None = None

    def duration(self, delay_scale: float) -> float:
        """Return the virtual seconds that the program runs at a delay scale."""
        return max(self.seconds * delay_scale, self.least)

    @property
    def text(self) -> str:
        """The termination message as the kubelet stores it, cut to `MAX_MESSAGE` bytes."""
        return _stored(self.message)


def _stored(message: str | dict[str, Any]) -> str:
    """Return a termination message as the kubelet stores it."""
    text = message if isinstance(message, str) else msgspec.json.encode(message).decode()
    return text.encode()[:MAX_MESSAGE].decode(errors="ignore")


class BlockedStart(Struct, frozen=True, kw_only=True):
    """The behaviour of a pod that stays Pending: a container waits with `reason` (`ImagePullBackOff`, `CreateContainerError`, …).

    `init` names the init container that does not end; with an empty `reason` that one runs for ever. `event` is the Warning event
    (`Reason: message`) that the kubelet writes about the pod, `before` the termination message of init containers. The program is
    asked again when the pod's node changes, or when hosts or faults change.
    """

    reason: str = ""
    message: str = ""
    init: str = ""
    log: str = ""
    event: str = ""
    before: str | dict[str, Any] = ""


def without_sandbox(cause: str) -> BlockedStart:
    """Return the behaviour of a pod whose network cannot be set up: its containers wait without a message, only the event tells."""
    event = f"FailedCreatePodSandBox: Failed to create pod sandbox: rpc error: code = Unknown desc = {cause}"
    return BlockedStart(reason="ContainerCreating", event=event)


class NeverStarted(Struct, frozen=True, kw_only=True):
    """The behaviour of a pod that fails for good before its program runs.

    With `code` 0 the kubelet refuses the pod (`UnexpectedAdmissionError`); otherwise the container runtime fails with that exit
    code (`StartError`).
    """

    reason: str
    message: str
    code: int = 0


Behaviour = LongRunning | Exit | BlockedStart | NeverStarted
Program = Callable[[World, Obj, str], Behaviour]
"""A function that returns how a pod behaves on a node. It may not change anything.

It gets the world, the pod (or a DaemonSet's template as a pod) and the node's name.
"""

_PROGRAMS: dict[tuple[str, str], Program] = {}
ANY = "*"


def pod_program(label: str, value: str = ANY) -> Callable[[Program], Program]:
    """Return a decorator that registers the program of pods with this label value. `*` is any value without program."""

    def register(program: Program) -> Program:
        _PROGRAMS[label, value] = program
        return program

    return register


def check(name: str) -> Callable[[Program], Program]:
    """Return a decorator that registers the program of the pods of the functional check `name`."""
    return pod_program(CHECK, name)


def blocked_by(fault: str, label: str, value: str, message: str, reason: str = "CrashLoopBackOff") -> None:
    """Register pods with this label value: they run, or stay Pending with `reason` and `message` while the fault hits them.

    A fault with default victims must hit the pod's node, any other hits the whole cluster.
    """

    def program(world: World, _pod: Obj, node: str) -> Behaviour:
        hit = world.fault(fault, node if find_fault(fault).node else "")
        return BlockedStart(reason=reason, message=message) if hit else LongRunning()

    pod_program(label, value)(program)


def behaviour(world: World, pod: Obj, node: str) -> Behaviour:
    """Return a pod's behaviour on a node. Without program it runs if its restart policy is Always, else it ends with code 0."""
    labels = labels_of(pod)
    for pair in labels.items():
        if pair in _PROGRAMS:
            return _PROGRAMS[pair](world, pod, node)
    for label in labels:
        if (label, ANY) in _PROGRAMS:
            return _PROGRAMS[label, ANY](world, pod, node)
    return LongRunning() if pod["spec"].get("restartPolicy", "Always") == "Always" else Exit()


MAX_PACKED = 3800
"""Most characters of packed output that check scripts report, because a termination message holds 4,096 bytes."""

LOG_CHUNK = 2_000_000
"""Characters of a log that are sent in one request; API servers take at most 3 MiB."""


def pack(text: str) -> str:
    """Return a text in gzip and base64, as check scripts report it; empty if that exceeds `MAX_PACKED` characters."""
    for level in (1, 9):  # scripts use 9, which takes four times as long and is seldom needed
        packed = base64.b64encode(gzip.compress(text.encode(), level, mtime=0)).decode()
        if len(packed) <= MAX_PACKED:
            return packed
    return ""


def keep_log(world: World, pod: Obj, text: str) -> None:
    """Append a long text to the log of a pod's first container, in several requests. Use it as effect in place of `Exit.log`."""
    for start in range(0, len(text), LOG_CHUNK):
        world.log(pod, pod["spec"]["containers"][0]["name"], text[start : start + LOG_CHUNK])


def environment(pod: Obj) -> dict[str, str]:
    """Return those environment variables of a pod's first container that have a plain value."""
    entries = pod["spec"]["containers"][0].get("env") or ()
    return {entry["name"]: entry["value"] for entry in entries if "value" in entry}


def running(pod: Obj, at: str, *, ready: bool = True) -> Obj:
    """Return the status of a pod whose containers have run since the timestamp `at`."""
    return _status(pod, "Running", at, {"running": {"startedAt": at}}, ready=ready, restarts=restarts(pod))


def ended(pod: Obj, end: Exit, started: str, at: str) -> Obj:
    """Return the status of a pod whose program ended for good at `at`: phase Succeeded or Failed, with the message."""
    phase = "Succeeded" if end.code == 0 else "Failed"
    status = _status(pod, phase, at, terminated(end, started, at), ready=False, restarts=restarts(pod), before=end.before)
    if end.image_id:
        status["containerStatuses"] = [entry | {"imageID": end.image_id} for entry in status["containerStatuses"]]
    return status


def crashed(pod: Obj, end: Exit, started: str, at: str) -> Obj:
    """Return the status of a pod in CrashLoopBackOff whose program ended at `at`; it counts one more restart."""
    message = f"back-off restarting failed container in pod {pod['metadata']['name']}"
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    status = _status(pod, "Running", at, state, ready=False, restarts=restarts(pod) + 1)
    for entry in status["containerStatuses"]:
        entry["lastState"] = terminated(end, started, at)
    return status


def pending_status(pod: Obj, why: BlockedStart, at: str) -> Obj:
    """Return the status of a Pending pod, one of whose containers waits as `why` says."""
    waits: Obj = {"waiting": {"reason": why.reason, "message": why.message}} if why.reason else {"running": {"startedAt": at}}
    if not why.init:
        return _status(pod, "Pending", at, waits, ready=False, before=why.before)
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


def never_started(pod: Obj, failure: NeverStarted, at: str) -> Obj:
    """Return the status of a pod that failed at `at` before its program ran: refused, or with a container that never started."""
    if not failure.code:
        message = f"Pod was rejected: {failure.message}"
        return {"phase": "Failed", "reason": failure.reason, "message": message, "startTime": at}
    # runtimes report no start time for a container that they could not start
    end = {"exitCode": failure.code, "reason": failure.reason, "message": failure.message}
    state = {"terminated": end | {"startedAt": "1970-01-01T00:00:00Z", "finishedAt": at}}
    return _status(pod, "Failed", at, state, ready=False)


def terminated(end: Exit, started: str, at: str) -> dict[str, Any]:
    """Return the `terminated` state of a container whose program ran from `started` to `at`."""
    reason = "Completed" if end.code == 0 else "Error"
    state = {"exitCode": end.code, "reason": reason, "startedAt": started, "finishedAt": at}
    return {"terminated": state | ({"message": end.text} if end.text else {})}


def started_at(pod: Obj) -> str:
    """Return the timestamp at which a pod's container started; empty if none runs now."""
    for entry in pod.get("status", {}).get("containerStatuses") or ():
        if "running" in entry.get("state", {}):
            return str(entry["state"]["running"]["startedAt"])
    return ""


def _status(pod: Obj, phase: str, at: str, state: Obj, *, ready: bool, restarts: int = 0, before: str | dict[str, Any] = "") -> Obj:
    spec = pod["spec"]
    status: Obj = {
        "phase": phase,
        "startTime": pod.get("status", {}).get("startTime") or at,
        "containerStatuses": [_container(entry, dict(state), ready, restarts) for entry in spec["containers"]],
    }
    if spec.get("initContainers"):
        completed: Obj = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}}
        completed["terminated"] |= {"message": _stored(before)} if before else {}
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
