"""A linted Workflow and its WorkflowTemplates as frozen types, which the parser makes and the state machine reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workflows.render.grammar.depends import Depends

LOCAL = ""  # the scope of templates that stand in the workflow itself


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter passed to a template; a `value` of None means that it was passed without a value."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Input:
    """An input parameter that a template declares."""

    name: str
    value: str | None
    default: str | None


@dataclass(frozen=True, slots=True)
class Output:
    """An output parameter that a template declares, and the source of its value.

    The source is a file (`path`), another output (`parameter`), an expression, or an operator (`supplied`).
    """

    name: str
    path: str = ""
    parameter: str = ""
    expression: str = ""
    default: str | None = None
    supplied: bool = False
    global_name: str = ""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between attempts of a retryStrategy; durations are texts, `factor` is 0 if not given."""

    duration: str
    factor: int
    cap: str
    max_duration: str


@dataclass(frozen=True, slots=True)
class Retry:
    """A retryStrategy; a `limit` of None means no limit, a `policy` of "" the default policy."""

    limit: int | None
    policy: str
    expression: str
    backoff: Backoff | None

    def covers(self, phase: str) -> bool:
        """Return True if the policy allows another attempt after one that ended in `phase`."""
        # with an expression the default policy is Always: https://argo-workflows.readthedocs.io/en/latest/retries/
        policy = self.policy or ("Always" if self.expression else "OnFailure")
        return phase in {"Always": ("Failed", "Error"), "OnFailure": ("Failed",), "OnError": ("Error",)}.get(policy, ())


@dataclass(frozen=True, slots=True)
class TemplateCall:
    """A reference to the template to run: a name in the caller's own scope, or in the WorkflowTemplate `ref`."""

    template: str
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Hook:
    """An exit handler or other life-cycle hook: the template that it calls, and the expression on which it runs."""

    call: TemplateCall
    arguments: tuple[Argument, ...]
    expression: str = ""


@dataclass(frozen=True, slots=True)
class NumberSequence:
    """A withSequence of a task; its fields are texts."""

    start: str
    end: str
    count: str
    format: str


@dataclass(frozen=True, slots=True)
class TaskModel:
    """A task of a DAG, or a step of a group."""

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
        """Return True if the task fans out over items."""
        return bool(self.with_items) or bool(self.with_param) or self.with_sequence is not None


@dataclass(frozen=True, slots=True)
class ContainerModel:
    """The command of a pod; `env` keeps the order of declaration. `memory` is its memory limit in bytes, 0 without one."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    memory: int = 0


@dataclass(frozen=True, slots=True)
class DagShape:
    """The graph of a DAG: dependencies by task, targets (by default the leaves), and the tasks that the targets need."""

    tasks: Mapping[str, TaskModel]
    dependencies: Mapping[str, tuple[str, ...]]
    targets: tuple[str, ...]
    needed: tuple[str, ...]

    def ancestors(self, name: str) -> frozenset[str]:
        """Return the names of all direct and indirect dependencies of the task `name`."""
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
    """A template of any kind; fields that belong to other kinds are empty."""

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
    """A Workflow with all its templates, ready to run; immutable and derived from the manifest alone."""

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
        """Return the template that a call from a template of `scope` names, or None if it does not exist."""
        return self.templates.get((call.ref or scope, call.template))
