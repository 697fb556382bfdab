"""What runs inside simulated pods: stage modules register, by a label of the pod, how its containers behave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from workflows.rehearsal.simulator.kinds import Obj
from workflows.rehearsal.simulator.world import World

CHECK = "bringup/check"
"""Label of the pods of functional checks; its value names the check."""

MAX_MESSAGE = 4096
"""A kubelet keeps no more of a termination message."""


class ProgramError(Exception):
    """An effect ends its program with code 1 and this text as its message and last line of output."""


class Run(Struct, frozen=True, kw_only=True):
    """The containers run until the pod is deleted. `ready` false: they run, but their readiness probes fail."""

    ready: bool = True
    log: str = ""


class Exit(Struct, frozen=True, kw_only=True):
    """The containers end after `seconds` of running.

    `message` is the termination message (a dict becomes JSON), `log` the container's output. `effect` is run once at the end,
    before the pod shows it: all that the program changes in the cluster belongs there.
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


class Stuck(Struct, frozen=True, kw_only=True):
    """The pod does not get up: a container waits with this reason (`ImagePullBackOff`, `CreateContainerError`, …).

    `init` names the init container that does not end (earlier ones did); with an empty `reason` that one runs for ever.
    Programs of stuck pods are asked again when their node changes, or when hosts or faults change.
    """

    reason: str = ""
    message: str = ""
    init: str = ""
    log: str = ""


Behaviour = Run | Exit | Stuck
Program = Callable[[World, Obj, str], Behaviour]
"""Given the world, the pod (or what its DaemonSet would make: metadata and spec) and its node's name. Must change nothing."""

_PROGRAMS: dict[tuple[str, str], Program] = {}
ANY = "*"


def pods(label: str, value: str = ANY) -> Callable[[Program], Program]:
    """Register the program of pods with this label; `*` takes any value, after exact ones were tried."""

    def register(program: Program) -> Program:
        _PROGRAMS[label, value] = program
        return program

    return register


def check(name: str) -> Callable[[Program], Program]:
    """Register what the containers of functional check `name` do."""
    return pods(CHECK, name)


def behaviour(world: World, pod: Obj, node: str) -> Behaviour:
    """What a pod does on a node. Without a program, pods that may end succeed and the others run."""
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    for pair in labels.items():
        if pair in _PROGRAMS:
            return _PROGRAMS[pair](world, pod, node)
    for label in labels:
        if (label, ANY) in _PROGRAMS:
            return _PROGRAMS[label, ANY](world, pod, node)
    return Run() if pod["spec"].get("restartPolicy", "Always") == "Always" else Exit()
