"""The types of a stage as plain data: tasks and their order, gates, changes, and rollback."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from steps.contract.shortcut import Shortcut
from steps.contract.task import Task, Verb

Object = dict[str, Any]
"""A Kubernetes object as JSON data."""


class When(StrEnum):
    """Condition under which a task may start, given the tasks that it comes after."""

    PASSED = "passed"
    """Start if every earlier task succeeded."""
    ANYHOW = "anyhow"
    """Start once every earlier task ended or was left out after a failure: a judge must always judge."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A task of a stage in its place.

    `after` names tasks of the same stage. `fan_out` names the list of shards that `open` hands out (`shards` or `agents`); it is
    empty for a single task. `rules` are the rights that the task needs on the target.
    """

    task: Task
    after: tuple[str, ...] = ()
    when: When = When.PASSED
    fan_out: str = ""
    rules: tuple["Rule", ...] = ()

    @property
    def name(self) -> str:
        """Return the task's name within its stage (snake_case)."""
        return self.task.name


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rights on the target, as a Kubernetes Role states them."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    """Namespaces in which the rights hold; empty means cluster-wide."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change that a stage makes, for the plan that a person reads; `where` names nodes (as ranges) or releases."""

    what: str
    where: str
    reboots: bool = False


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of a plan.

    `gates` are gate ids in running order without the judge's; `releases` are release ids of the catalog.
    """

    id: str
    title: str
    steps: tuple[Step, ...]
    gates: tuple[str, ...]
    changes: tuple[Change, ...]
    rollback: str
    releases: tuple[str, ...] = ()
    parallelism: int = 0
    """Largest number of tasks of the stage at one time, over all shards; 0 means as many as the engine runs."""
    approval: "Approval | None" = None
    shortcut: Shortcut | None = None
    """The output by which the stage says that nothing is left to do, so that all later stages are skipped."""
    downloads: tuple[str, ...] = ()
    """Names of the stage's tasks that fetch over HTTP: their pods get the proxies of the spec."""

    @property
    def digested(self) -> Object:
        """Return the fields that a plan's digest covers: all but those that only say how the stage is rendered and shown."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in ("shortcut", "downloads")}


@dataclass(frozen=True, kw_only=True)
class Approval:
    """A person's decision before a stage starts.

    `approvers` maps names to SSH public keys (empty where a name is enough). `announced` is WEBHOOK (the run itself calls it),
    COMMAND (the process that follows the run starts it), or empty.
    """

    approvers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    timeout_seconds: int = 86400
    announced: str = ""


WEBHOOK, COMMAND = "webhook", "command"
"""Ways to announce an approval. A command runs on the machine that follows the run; a webhook's URL is a secret of the run."""


Builder = Callable[..., Stage | None]
"""Type of a stage module's `build(site)`, which returns None when the spec leaves the stage out."""


def task(
    stage: str, name: str, verb: Verb, *, deadline: int, arguments: Object | None = None, expectations: Object | None = None
) -> Task:
    """Return a task of a stage; `deadline` is in seconds."""
    return Task(
        stage=stage, name=name, verb=verb, arguments=arguments or {}, expectations=expectations or {}, deadline_seconds=deadline
    )
