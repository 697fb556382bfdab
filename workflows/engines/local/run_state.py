"""Types of the state machine: nodes and state of a run, events that go in, actions that come out.

All are frozen; times are in seconds since the run's start.
"""

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
    """The outputs of a node; a parameter with the value None is declared but was never set."""

    parameters: Mapping[str, str | None] = field(default_factory=dict)
    exit_code: int | None = None
    result: str | None = None

    def __bool__(self) -> bool:
        return bool(self.parameters) or self.exit_code is not None or self.result is not None


NOTHING = Outputs()


@dataclass(frozen=True, slots=True)
class FanOutBranch:
    """One call of a task that fans out: its name, arguments and condition."""

    name: str
    arguments: tuple[Argument, ...]
    when: str


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Circumstances of a template's call: the enclosing node, the node that continues afterwards, local variables, and flags."""

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
    """A node of a run: a pod, a gate, a DAG, a group, a Retry node or a skipped task.

    `path` is the full node name and `name` the display name, as in the status of a Workflow.
    """

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
        """Return True if the node's phase is final: Succeeded, Failed, Error, Skipped or Omitted."""
        return self.phase in FULFILLED

    @property
    def unsuccessful(self) -> bool:
        """Return True if the node's phase is Failed or Error."""
        return self.phase in (FAILED, ERROR)


@dataclass(frozen=True, slots=True)
class RunState:
    """The whole state of a run between two events."""

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
        """Return True if the workflow's phase is final: Succeeded, Failed or Error."""
        return self.phase in COMPLETED

    @property
    def wake(self) -> float | None:
        """Return the time of the next deadline, end of a gate's duration, or end of a back-off; None if there is none."""
        return min(self.timers.values()) if self.timers and not self.finished else None

    @property
    def waits_for_time(self) -> bool:
        """Return True if the run waits only for time: no pod works or is queued, no gate is open, and the run is not suspended."""
        gates = (node for node in self.nodes.values() if node.type == "Suspend" and not node.fulfilled)
        return self.wake is not None and not (self.live or self.queue or self.suspended) and next(gates, None) is None


# --- events: what happened -------------------------------------------------------------------------------------------


class EngineEvent(msgspec.Struct, frozen=True, tag_field="event", kw_only=True):
    """Base class of events; `at` is when the event happened."""

    at: float


class RunBegan(EngineEvent, frozen=True, tag="run-began"):
    """Event: the run began. It is the first event of every run."""


class PodStarted(EngineEvent, frozen=True, tag="pod-started"):
    """Event: the process of a pod was started."""

    node: str


class PodEnded(EngineEvent, frozen=True, tag="pod-ended"):
    """Event: the process of a pod ended, or could not be started.

    `undelivered` says which declared output could not be read, `refused` why no process was started; both are "" otherwise.
    """

    node: str
    exit_code: int
    parameters: dict[str, str] = {}
    undelivered: str = ""
    result: str | None = None
    refused: str = ""


class TimeCame(EngineEvent, frozen=True, tag="time-came"):
    """Event: the time that `RunState.wake` named has come."""


class EngineReturned(EngineEvent, frozen=True, tag="engine-returned"):
    """Event: a new engine took over the run, and all processes of the old one are dead."""


class Operator(EngineEvent, frozen=True, tag="operator"):
    """Event: an operator requested approve, set, resume, stop, terminate or suspend for a node; `node` "" is the workflow."""

    verb: str
    node: str = ""
    parameters: dict[str, str] = {}
    message: str = ""
    ticket: str = ""


AnyEvent = RunBegan | PodStarted | PodEnded | TimeCame | EngineReturned | Operator


# --- actions: what the executor has to do ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartPod:
    """Action for the executor: start this pod now, or again after a new engine took over."""

    node: str
    template: TemplateModel
    capture: bool  # whether stdout is the node's `outputs.result`


@dataclass(frozen=True, slots=True)
class EndPod:
    """Action for the executor: end the pod by SIGTERM, then SIGKILL; the event PodEnded follows."""

    node: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Action: reply to an operator's request; `error` is "" if it was accepted."""

    ticket: str
    error: str


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """Action for displays: a node in its new state."""

    node: RunNode


@dataclass(frozen=True, slots=True)
class RunChanged:
    """Action for displays: the workflow's phase, message, shutdown or suspension changed."""

    phase: str
    message: str
    suspended: bool
    shutdown: str


Action = StartPod | EndPod | Answer | NodeChanged | RunChanged
