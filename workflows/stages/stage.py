"""What a stage is, as plain data: its tasks and their order, its gates, what it changes, and how it is rolled back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from steps.contract.task import Task, Verb

Object = dict[str, Any]
"""A Kubernetes object as JSON data."""


class When(StrEnum):
    """When a task may start, given the tasks it comes after."""

    PASSED = "passed"
    """All of them succeeded."""
    ANYHOW = "anyhow"
    """All of them ended, or were left out because of an earlier failure: a judge must always judge."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One task of a stage in its place: `after` are task names of the same stage; `fan_out` names the list of shards that `open`
    hands out (`shards` or `agents`), empty for a single task. `rules` are the rights that the task needs on the target."""

    task: Task
    after: tuple[str, ...] = ()
    when: When = When.PASSED
    fan_out: str = ""
    rules: tuple["Rule", ...] = ()

    @property
    def name(self) -> str:
        """The task's name within its stage (snake_case)."""
        return self.task.name


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rights on the target as a Role has them."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    """Empty: cluster-wide."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a stage changes, for the plan that a person reads. `where` names nodes (as ranges) or releases."""

    what: str
    where: str
    reboots: bool = False


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a plan. `gates` are gate ids in running order, the judge's left out; `releases` are catalog release ids."""

    id: str
    title: str
    steps: tuple[Step, ...]
    gates: tuple[str, ...]
    changes: tuple[Change, ...]
    rollback: str
    releases: tuple[str, ...] = ()
    parallelism: int = 0
    """Most tasks of it at one time, over all shards; 0: as many as the engine runs."""
    approval: "Approval | None" = None


@dataclass(frozen=True, kw_only=True)
class Approval:
    """A person's decision before a stage starts: `approvers` maps names to SSH public keys (none where a name will do); `announced`
    says how they hear of it: WEBHOOK, which the run itself tells, COMMAND, which who follows the run starts, or not at all."""

    approvers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    timeout_seconds: int = 86400
    announced: str = ""


WEBHOOK, COMMAND = "webhook", "command"
"""Ways to announce an approval. A command is of the machine that follows; a webhook's URL is a secret of the run."""


Builder = Callable[..., Stage | None]
"""`build(site: Site) -> Stage | None` of a stage module; None when the spec leaves the stage out."""


def task(
    stage: str, name: str, verb: Verb, *, deadline: int, arguments: Object | None = None, expectations: Object | None = None
) -> Task:
    """A task of a stage. `deadline` is in seconds."""
    return Task(
        stage=stage, name=name, verb=verb, arguments=arguments or {}, expectations=expectations or {}, deadline_seconds=deadline
    )
