"""The types of a stage as plain data: tasks and their order, gates, changes, rollback; and the input of a stage's builder."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import Any

from steps.contract.delivery import tree_digest
from steps.contract.operation import BRINGUP, Operation
from steps.contract.stage_contracts import Shortcut
from steps.contract.task import Task, Verb
from workflows.catalog import PlannedRelease
from workflows.gitops import repository_tree
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.fields import StageName
from workflows.spec.machines import Machine


@dataclass(frozen=True, kw_only=True)
class Site:
    """A resolved spec. `releases` are by release id, in catalog order; `machines` are all hosts of the spec."""

    spec: ClusterSpec
    machines: tuple[Machine, ...]
    releases: Mapping[str, PlannedRelease]
    operation: Operation = BRINGUP

    def count(self, select: str) -> int:
        """Return the number of machines that a selector (`all`, `gpu`, `server` or `agent`) takes."""
        return sum(_takes(machine, select) for machine in self.machines)

    def touched(self, select: str) -> tuple[str, ...]:
        """Return the names of the selector's machines that this operation's plays may change."""
        return tuple(self.operation.touched(machine.name for machine in self.machines if _takes(machine, select)))

    @cached_property
    def tree(self) -> Mapping[str, str]:
        """Return the files that are published to Git, path → text; empty where Argo CD does not deliver."""
        if self.spec.delivery.argo_cd is None:
            return {}
        return repository_tree.published_files(self.spec, repository_tree.render_tree(self.spec, self.releases.values()))

    @cached_property
    def tree_digest(self) -> str:
        """Return the digest of the published tree, by which tasks name it."""
        return tree_digest(self.tree)

    def needed(self, stage: StageName, select: str) -> int:
        """Return the quorum of a stage: how many of the selector's machines must pass."""
        return self.spec.quorum.share(stage).needed(self.count(select))


def _takes(machine: Machine, select: str) -> bool:
    return select == "all" or (machine.gpu if select == "gpu" else machine.role == select)


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


def judge_step(
    stage: str, checks: Iterable[Object], *, deadline: int = 600, rules: tuple[Rule, ...] = (), **arguments: object
) -> Step:
    """Return the step that decides a stage, whatever came of its tasks.

    Each of `checks` names a task with its gate, in running order. `rules` are those of cordons: without them no node is cordoned.
    """
    listed = list(checks)
    judged: Object = {"checks": listed, "cordon": bool(rules), **arguments}
    return Step(
        task=task(stage, "judge", Verb.JUDGE, deadline=deadline, arguments=judged),
        after=tuple(check["task"] for check in listed),
        when=When.ANYHOW,
        rules=rules,
    )


def task(
    stage: str, name: str, verb: Verb, *, deadline: int, arguments: Object | None = None, expectations: Object | None = None
) -> Task:
    """Return a task of a stage; `deadline` is in seconds."""
    return Task(
        stage=stage, name=name, verb=verb, arguments=arguments or {}, expectations=expectations or {}, deadline_seconds=deadline
    )
