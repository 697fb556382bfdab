"""Programs inside simulated pods: stage modules register by pod label how containers behave and what checks report."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from workflows.rehearsal.simulator.api_kinds import Obj
from workflows.rehearsal.simulator.world import World

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


def behaviour(world: World, pod: Obj, node: str) -> Behaviour:
    """Return a pod's behaviour on a node. Without a program, a pod that may end succeeds and any other runs."""
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
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
