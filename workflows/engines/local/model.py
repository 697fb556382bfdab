"""The manifest as frozen types: a linted Workflow and the WorkflowTemplates that it names, as the state machine reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workflows.render.grammar.depends import Depends

LOCAL = ""  # the scope of templates that stand in the workflow itself


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter passed to a template; `value` None means that it was passed without a value."""

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
    """A declared output parameter and the source of its value: a path, another output, an expression, or an operator."""

    name: str
    path: str = ""
    parameter: str = ""
    expression: str = ""
    default: str | None = None
    supplied: bool = False
    global_name: str = ""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits between attempts; durations are texts, `factor` is 0 if not given."""

    duration: str
    factor: int
    cap: str
    max_duration: str


@dataclass(frozen=True, slots=True)
class Retry:
    """A retryStrategy; `limit` None means no limit, `policy` "" the default policy."""

    limit: int | None
    policy: str
    expression: str
    backoff: Backoff | None

    def covers(self, phase: str) -> bool:
        """Return True if an attempt that ended in `phase` may be repeated."""
        # with an expression the default policy is Always: https://argo-workflows.readthedocs.io/en/latest/retries/
        policy = self.policy or ("Always" if self.expression else "OnFailure")
        return phase in {"Always": ("Failed", "Error"), "OnFailure": ("Failed",), "OnError": ("Error",)}.get(policy, ())


@dataclass(frozen=True, slots=True)
class TemplateCall:
    """The template to run: a name in the caller's own scope, or in the WorkflowTemplate `ref`."""

    template: str
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Hook:
    """An exit handler or life-cycle hook."""

    call: TemplateCall
    arguments: tuple[Argument, ...]
    expression: str = ""


@dataclass(frozen=True, slots=True)
class NumberSequence:
    """A withSequence; its fields are texts."""

    start: str
    end: str
    count: str
    format: str


@dataclass(frozen=True, slots=True)
class TaskModel:
    """A DAG task, or one step of a group."""

    name: str
    call: TemplateCall
    arguments: tuple[Argument, ...]
    when: str
    with_items: tuple[Any, ...] | None
    with_param: str
    with_sequence: NumberSequence | None
    depends: Depends | None
    continue_on: frozenset[str]  # of "Failed", "Error"
    exit_hook: Hook | None

    @property
    def expands(self) -> bool:
        """Return True if the task fans out."""
        return bool(self.with_items) or bool(self.with_param) or self.with_sequence is not None


@dataclass(frozen=True, slots=True)
class ContainerModel:
    """The command of a pod; `env` is in declared order."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DagShape:
    """The graph of a DAG: dependencies, targets (by default the leaves), and the tasks that the targets need."""

    tasks: Mapping[str, TaskModel]
    dependencies: Mapping[str, tuple[str, ...]]
    targets: tuple[str, ...]
    needed: tuple[str, ...]

    def ancestors(self, name: str) -> frozenset[str]:
        """Return every direct or indirect dependency of `name`."""
        ancestors: set[str] = set()
        waiting = list(self.dependencies[name])
        while waiting:
            parent = waiting.pop()
            if parent not in ancestors:
                ancestors.add(parent)
                waiting += self.dependencies[parent]
        return frozenset(ancestors)


@dataclass(frozen=True, slots=True)
class TemplateModel:
    """A template; fields of other kinds are empty."""

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
    container: ContainerModel | None = None
    duration: str = ""
    tasks: tuple[TaskModel, ...] = ()
    steps: tuple[tuple[TaskModel, ...], ...] = ()
    fail_fast: bool = True
    shape: DagShape | None = None
    results_read: frozenset[str] = frozenset()  # tasks or steps whose `outputs.result` something refers to


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """The whole workflow, ready to run; immutable and derived from the manifest alone."""

    name: str
    entrypoint: str
    arguments: tuple[Argument, ...]
    templates: Mapping[tuple[str, str], TemplateModel]
    exit_hook: Hook | None
    hooks: Mapping[str, Hook]
    variables: Mapping[str, str]  # workflow.* that do not change during a run
    parallelism: int | None
    active_deadline: float | None
    suspended: bool
    slots: int  # how many pods the engine runs at one time
    has_limits: bool = field(default=False)  # whether anything limits parallelism or locks

    def template(self, call: TemplateCall, scope: str) -> TemplateModel | None:
        """Return the template that `call` names, seen from a template of `scope`, or None."""
        return self.templates.get((call.ref or scope, call.template))
