"""What the state machine works on: nodes, the state of a run, events in, actions out; all frozen, times in seconds of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from workflows.engines.local.model import Argument, Call, Template

PENDING, RUNNING, SUCCEEDED, FAILED, ERROR = "Pending", "Running", "Succeeded", "Failed", "Error"
SKIPPED, OMITTED = "Skipped", "Omitted"
COMPLETED = frozenset({SUCCEEDED, FAILED, ERROR})
FULFILLED = COMPLETED | {SKIPPED, OMITTED}


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a node delivered; a parameter that is None was declared and never set."""

    parameters: Mapping[str, str | None] = field(default_factory=dict)
    exit_code: int | None = None
    result: str | None = None

    def __bool__(self) -> bool:
        return bool(self.parameters) or self.exit_code is not None or self.result is not None


NOTHING = Outputs()


@dataclass(frozen=True, slots=True)
class Branch:
    """One expanded element of a task: what will be called under which name."""

    name: str
    arguments: tuple[Argument, ...]
    when: str


@dataclass(frozen=True, slots=True)
class Options:
    """How a template is called: by which node, in which boundary, what stands for `tasks.name`, flags, whose result may be read."""

    boundary: str = ""
    owner: str = ""  # the node that carries on when this one changed: a DAG, a group, a Retry node
    variables: tuple[tuple[str, str], ...] = ()
    task: str = ""
    on_exit: bool = False
    hooked: bool = False
    retried: bool = False
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the tree; `path` is the full node name, `name` the display name (as in the workflow status)."""

    path: str
    name: str
    type: str
    phase: str
    started: float
    template_name: str = ""
    message: str = ""
    boundary: str = ""
    children: tuple[str, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    outputs: Outputs = NOTHING
    hooked: bool = False
    retried: bool = False
    finished: float | None = None
    launched: bool = False  # a pod that was handed to the executor
    kill: str = ""  # the message it will get once the executor has ended it
    synced: bool = True  # False: ended by a shutdown, its dependants are never assessed
    on_exit: bool = False
    template: Template | None = None  # with arguments substituted
    call: Call | None = None
    options: Options = Options()
    branches: tuple[Branch, ...] = ()
    outbound: tuple[str, ...] = ()

    @property
    def fulfilled(self) -> bool:
        """Nothing more will happen to it."""
        return self.phase in FULFILLED

    @property
    def unsuccessful(self) -> bool:
        """Failed or Error."""
        return self.phase in (FAILED, ERROR)


@dataclass(frozen=True, slots=True)
class State:
    """The whole run between two events."""

    nodes: Mapping[str, Node]
    at: float = 0.0
    phase: str = ""  # "", Running, Succeeded, Failed, Error
    message: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    suspended: bool = False
    shutdown: str = ""  # "", Stop, Terminate
    broken: str = ""  # the entry template could not be executed: end what runs, then Error with this message
    queue: tuple[str, ...] = ()  # pods that wait for a slot
    live: int = 0  # pods handed to the executor and not ended
    timers: Mapping[str, float] = field(default_factory=dict)
    locks: Mapping[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the workflow has its final phase."""
        return self.phase in COMPLETED

    @property
    def wake(self) -> float | None:
        """When something happens by itself (a deadline, a duration, a backoff)."""
        return min(self.timers.values()) if self.timers and not self.finished else None

    @property
    def waits_for_time(self) -> bool:
        """Whether nothing but time is waited for: no pod is at work, no gate is open, no operator has to resume the run."""
        gates = (node for node in self.nodes.values() if node.type == "Suspend" and not node.fulfilled)
        return self.wake is not None and not (self.live or self.queue or self.suspended) and next(gates, None) is None


# --- events: what happened -------------------------------------------------------------------------------------------


class Event(msgspec.Struct, frozen=True, tag_field="event", kw_only=True):
    """Something that happened at `at`."""

    at: float


class RunBegan(Event, frozen=True, tag="run-began"):
    """The first event of every run."""


class PodStarted(Event, frozen=True, tag="pod-started"):
    """The process of a pod exists."""

    node: str


class PodEnded(Event, frozen=True, tag="pod-ended"):
    """The process ended; `undelivered` says which declared output could not be read, `refused` why nothing was started."""

    node: str
    exit_code: int
    parameters: dict[str, str] = {}
    undelivered: str = ""
    result: str | None = None
    refused: str = ""


class TimeCame(Event, frozen=True, tag="time-came"):
    """`State.wake` was reached."""


class EngineReturned(Event, frozen=True, tag="engine-returned"):
    """A new engine took over; whatever the old one had started is ended."""


class Operator(Event, frozen=True, tag="operator"):
    """A person acted: approve, set, resume, stop, terminate, suspend; `node` is a display name or a path, "" the whole workflow."""

    verb: str
    node: str = ""
    parameters: dict[str, str] = {}
    message: str = ""
    ticket: str = ""


AnyEvent = RunBegan | PodStarted | PodEnded | TimeCame | EngineReturned | Operator


# --- actions: what the executor has to do ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartPod:
    """Run this container now (after a return of the engine: again)."""

    node: str
    template: Template
    capture: bool  # whether stdout is the node's `outputs.result`


@dataclass(frozen=True, slots=True)
class EndPod:
    """SIGTERM, then SIGKILL; PodEnded follows."""

    node: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an Operator event; `error` is "" when it was accepted."""

    ticket: str
    error: str


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """For displays: the node as it is now."""

    node: Node


@dataclass(frozen=True, slots=True)
class RunChanged:
    """For displays: phase, shutdown or suspension of the workflow changed."""

    phase: str
    message: str
    suspended: bool
    shutdown: str


Action = StartPod | EndPod | Answer | NodeChanged | RunChanged
