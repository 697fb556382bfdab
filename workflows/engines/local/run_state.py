"""Types of the state machine: nodes, run state, events in, actions out; all frozen, times in seconds since the run's start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from workflows.engines.local.model import Argument, TemplateCall, TemplateModel

PENDING, RUNNING, SUCCEEDED, FAILED, ERROR = "Pending", "Running", "Succeeded", "Failed", "Error"
SKIPPED, OMITTED = "Skipped", "Omitted"
COMPLETED = frozenset({SUCCEEDED, FAILED, ERROR})
FULFILLED = COMPLETED | {SKIPPED, OMITTED}


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of a node; a parameter with value None was declared but never set."""

    parameters: Mapping[str, str | None] = field(default_factory=dict)
    exit_code: int | None = None
    result: str | None = None

    def __bool__(self) -> bool:
        return bool(self.parameters) or self.exit_code is not None or self.result is not None


NOTHING = Outputs()


@dataclass(frozen=True, slots=True)
class FanOutBranch:
    """An element of an expanded task: the name and arguments of its call."""

    name: str
    arguments: tuple[Argument, ...]
    when: str


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options of a call: its boundary, the node that continues afterwards, local variables, and flags."""

    boundary: str = ""
    owner: str = ""  # the node that carries on when this one changed: a DAG, a group, a Retry node
    variables: tuple[tuple[str, str], ...] = ()
    task: str = ""
    on_exit: bool = False
    hooked: bool = False
    retried: bool = False
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class RunNode:
    """A node of the tree; `path` is the full node name, `name` the display name, as in the status of a Workflow."""

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
    template: TemplateModel | None = None  # with arguments substituted
    call: TemplateCall | None = None
    options: CallOptions = CallOptions()
    branches: tuple[FanOutBranch, ...] = ()
    outbound: tuple[str, ...] = ()

    @property
    def fulfilled(self) -> bool:
        """Return True if the node is in a final phase."""
        return self.phase in FULFILLED

    @property
    def unsuccessful(self) -> bool:
        """Return True if the node is Failed or Error."""
        return self.phase in (FAILED, ERROR)


@dataclass(frozen=True, slots=True)
class RunState:
    """The whole run between two events."""

    nodes: Mapping[str, RunNode]
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
        """Return True if the workflow has its final phase."""
        return self.phase in COMPLETED

    @property
    def wake(self) -> float | None:
        """Return the time of the next deadline, duration or back-off, or None."""
        return min(self.timers.values()) if self.timers and not self.finished else None

    @property
    def waits_for_time(self) -> bool:
        """Return True if only time is waited for: no pod is working, no gate is open, and the run is not suspended."""
        gates = (node for node in self.nodes.values() if node.type == "Suspend" and not node.fulfilled)
        return self.wake is not None and not (self.live or self.queue or self.suspended) and next(gates, None) is None


# --- events: what happened -------------------------------------------------------------------------------------------


class EngineEvent(msgspec.Struct, frozen=True, tag_field="event", kw_only=True):
    """An event that happened at `at`."""

    at: float


class RunBegan(EngineEvent, frozen=True, tag="run-began"):
    """The first event of every run."""


class PodStarted(EngineEvent, frozen=True, tag="pod-started"):
    """Event: the process of a pod exists."""

    node: str


class PodEnded(EngineEvent, frozen=True, tag="pod-ended"):
    """Event: the process ended; `undelivered` says which declared output could not be read, `refused` why nothing was started."""

    node: str
    exit_code: int
    parameters: dict[str, str] = {}
    undelivered: str = ""
    result: str | None = None
    refused: str = ""


class TimeCame(EngineEvent, frozen=True, tag="time-came"):
    """Event: the time `RunState.wake` has come."""


class EngineReturned(EngineEvent, frozen=True, tag="engine-returned"):
    """Event: a new engine took over, and all processes of the old one are dead."""


class Operator(EngineEvent, frozen=True, tag="operator"):
    """Event: an operator acted (approve, set, resume, stop, terminate, suspend) on a node or, if `node` is "", the workflow."""

    verb: str
    node: str = ""
    parameters: dict[str, str] = {}
    message: str = ""
    ticket: str = ""


AnyEvent = RunBegan | PodStarted | PodEnded | TimeCame | EngineReturned | Operator


# --- actions: what the executor has to do ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartPod:
    """Action: start this container now; after a return of the engine, start it again."""

    node: str
    template: TemplateModel
    capture: bool  # whether stdout is the node's `outputs.result`


@dataclass(frozen=True, slots=True)
class EndPod:
    """Action: end the pod by SIGTERM, then SIGKILL; PodEnded follows."""

    node: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Action: reply to an operator; `error` is "" if the action was accepted."""

    ticket: str
    error: str


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """Action for displays: the node in its new state."""

    node: RunNode


@dataclass(frozen=True, slots=True)
class RunChanged:
    """Action for displays: phase, shutdown or suspension of the workflow changed."""

    phase: str
    message: str
    suspended: bool
    shutdown: str


Action = StartPod | EndPod | Answer | NodeChanged | RunChanged
