"""The manifest as frozen types: what the state machine reads (a linted Workflow and the WorkflowTemplates it names)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workflows.render.grammar.depends import Depends

LOCAL = ""  # the scope of templates that stand in the workflow itself


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter given to a template; `value` None means "given without a value"."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Input:
    """A declared input parameter."""

    name: str
    value: str | None
    default: str | None


@dataclass(frozen=True, slots=True)
class Output:
    """A declared output parameter and where its value comes from (path, another output, an expression, or an operator)."""

    name: str
    path: str = ""
    parameter: str = ""
    expression: str = ""
    default: str | None = None
    supplied: bool = False
    global_name: str = ""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits between attempts; durations as text, `factor` 0 when not given."""

    duration: str
    factor: int
    cap: str
    max_duration: str


@dataclass(frozen=True, slots=True)
class Retry:
    """A retryStrategy; `limit` None is no limit, `policy` "" is the default policy."""

    limit: int | None
    policy: str
    expression: str
    backoff: Backoff | None

    def covers(self, phase: str) -> bool:
        """Whether an attempt that ended in `phase` may be tried again (hera_argo §2.5: an expression makes Always the default)."""
        policy = self.policy or ("Always" if self.expression else "OnFailure")
        return phase in {"Always": ("Failed", "Error"), "OnFailure": ("Failed",), "OnError": ("Error",)}.get(policy, ())


@dataclass(frozen=True, slots=True)
class Call:
    """Which template runs: a name in the caller's own scope, or `ref` (a WorkflowTemplate) and a name there."""

    template: str
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Hook:
    """An exit handler or life-cycle hook."""

    call: Call
    arguments: tuple[Argument, ...]
    expression: str = ""


@dataclass(frozen=True, slots=True)
class Sequence:
    """withSequence, as text."""

    start: str
    end: str
    count: str
    format: str


@dataclass(frozen=True, slots=True)
class Task:
    """A DAG task or one step of a group."""

    name: str
    call: Call
    arguments: tuple[Argument, ...]
    when: str
    with_items: tuple[Any, ...] | None
    with_param: str
    with_sequence: Sequence | None
    depends: Depends | None
    continue_on: frozenset[str]  # of "Failed", "Error"
    exit_hook: Hook | None

    @property
    def expands(self) -> bool:
        """Whether the task is a fan-out."""
        return bool(self.with_items) or bool(self.with_param) or self.with_sequence is not None


@dataclass(frozen=True, slots=True)
class Container:
    """What a pod runs; env in declared order."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is derived from a DAG's tasks once: dependencies, leaves (or the targets), and the tasks needed for them."""

    tasks: Mapping[str, Task]
    dependencies: Mapping[str, tuple[str, ...]]
    targets: tuple[str, ...]
    needed: tuple[str, ...]

    def ancestors(self, name: str) -> frozenset[str]:
        """Every task that `name` waits for, near or far."""
        found: set[str] = set()
        waiting = list(self.dependencies[name])
        while waiting:
            parent = waiting.pop()
            if parent not in found:
                found.add(parent)
                waiting += self.dependencies[parent]
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Template:
    """One template; the fields of other kinds are empty."""

    name: str
    kind: str  # container, suspend, dag, steps
    scope: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    retry: Retry | None
    timeout: str
    active_deadline: str
    parallelism: int | None
    mutexes: tuple[str, ...]
    container: Container | None = None
    duration: str = ""
    tasks: tuple[Task, ...] = ()
    steps: tuple[tuple[Task, ...], ...] = ()
    fail_fast: bool = True
    shape: Shape | None = None
    results_read: frozenset[str] = frozenset()  # tasks or steps whose `outputs.result` something refers to


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole workflow, ready to run; immutable and derived from the manifest alone."""

    name: str
    entrypoint: str
    arguments: tuple[Argument, ...]
    templates: Mapping[tuple[str, str], Template]
    exit_hook: Hook | None
    hooks: Mapping[str, Hook]
    variables: Mapping[str, str]  # workflow.* that do not change during a run
    parallelism: int | None
    active_deadline: float | None
    suspended: bool
    slots: int  # how many pods the engine runs at one time
    has_limits: bool = field(default=False)  # whether anything limits parallelism or locks

    def template(self, call: Call, scope: str) -> Template | None:
        """The template that `call` names, seen from a template of `scope`."""
        return self.templates.get((call.ref or scope, call.template))
