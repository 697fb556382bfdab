"""Types of stages as plain data (tasks and their order, gates, changes, rollback), and `Site`, the input of a stage's builder."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from steps.contract import fleet
from steps.contract.delivery import tree_digest
from steps.contract.runs.operation import BRINGUP, Operation, OperationKind
from steps.contract.stage_contracts import Shortcut
from steps.contract.task import Task, Verb
from workflows.catalog import PlannedRelease
from workflows.gitops import repository_tree
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.gpu_pools import GpuPool, gpu_pools
from workflows.spec.machines import Machine
from workflows.stage_names import StageName


@dataclass(frozen=True, kw_only=True)
class Site:
    """A resolved spec, from which the builders of stages take everything they need.

    `releases` are the planned releases by id, in catalog order; `machines` are all hosts of the spec; `operation` is what the run
    does. `pool` is set in the sites of `pools` if there are several.
    """

    spec: ClusterSpec
    machines: tuple[Machine, ...]
    releases: Mapping[str, PlannedRelease]
    operation: Operation = BRINGUP
    pool: GpuPool | None = None

    @cached_property
    def pools(self) -> tuple["Site", ...]:
        """Return a site for each pool of GPU machines, with the other GPU machines left out; the site itself if there is one pool.

        The builders of GPU stages ask these sites what differs between pools, and make tasks of their own for each.
        """
        pools = gpu_pools(self.spec) if self.pool is None else ()
        if len(pools) < 2:
            return (self,)
        return tuple(
            replace(
                self,
                spec=pool.spec,
                machines=tuple(machine for machine in self.machines if not machine.gpu or machine.group in pool.groups),
                pool=pool,
            )
            for pool in pools
        )

    @property
    def gpu_select(self) -> str:
        """Return the selector that takes exactly the GPU machines of this site; for an acceptance, those in its scope."""
        select = self.pool.selector if self.pool else "gpu"
        return f"{fleet.TOUCHED}{select}" if self.is_scoped else select

    @property
    def is_scoped(self) -> bool:
        """Return True for the acceptance of some nodes alone, as after a repair."""
        return self.operation.kind is OperationKind.ACCEPT and self.operation.is_partial

    def named(self, task: str) -> str:
        """Return the name of a task about the GPU machines of this site: `task`, and the pool's name where there are several."""
        return f"{task}_{self.pool.name}" if self.pool else task

    def count(self, select: str) -> int:
        """Return the number of machines that a selector (`all`, `gpu`, `server`, `agent` or `group-NAME,NAME`) matches."""
        if select not in self._counts:  # a plan asks some ninety times, which takes seconds for 10,000 machines
            self._counts[select] = len(_taken(self.machines, select))
        return self._counts[select]

    @cached_property
    def _counts(self) -> dict[str, int]:
        """Numbers of machines by selector, as far as they were asked for."""
        return {}

    def changeable_hosts(self, select: str) -> tuple[str, ...]:
        """Return the names of the machines that match the selector and that this operation may change."""
        return tuple(self.operation.touched(machine.name for machine in _taken(self.machines, select)))

    @cached_property
    def tree(self) -> Mapping[str, str]:
        """Return the files that are published to Git, path → text; empty if the spec does not use Argo CD."""
        if self.spec.delivery.argo_cd is None:
            return {}
        return repository_tree.published_files(self.spec, repository_tree.render_tree(self.spec, self.releases.values()))

    @cached_property
    def tree_digest(self) -> str:
        """Return the digest of the files that are published to Git; tasks and gates name the files by it."""
        return tree_digest(self.tree)

    def needed(self, stage: StageName, select: str) -> int:
        """Return the quorum of a stage: how many of the machines that match the selector must pass."""
        return self.spec.quorum.share(stage).needed(self.count(select))


def _taken(machines: Iterable[Machine], select: str) -> list[Machine]:
    """Return the machines that a selector matches."""
    if groups := fleet.selected_groups(select):
        return [machine for machine in machines if machine.group in groups]
    return [machine for machine in machines if select == "all" or (machine.gpu if select == "gpu" else machine.role == select)]


Object = dict[str, Any]
"""A Kubernetes object as JSON data."""


class When(StrEnum):
    """Condition on the preceding tasks under which a task may start."""

    PASSED = "passed"
    """Start if every earlier task succeeded."""
    ANYHOW = "anyhow"
    """Start once every earlier task ended or was left out after a failure, because a judge must always judge."""


@dataclass(frozen=True, kw_only=True)
class GraphTask:
    """A pod or process of a step that runs as a graph, such as a build of a software stack.

    `name` is unique within the step and may be used in manifests. `shard` is the number by which the task finds its part of the
    work. `after` names the tasks of the step that must succeed before this one starts; they are listed before it. `group` is the
    number of its group. A task waits for single tasks of its own group alone: of another group it waits for the end, in whatever
    phase, and then checks for itself that what it needs is there.
    """

    name: str
    shard: int
    after: tuple[str, ...] = ()
    group: int = 0


@dataclass(frozen=True, kw_only=True)
class ClaimMount:
    """A folder of a PersistentVolumeClaim of the home cluster, mounted in a task's pod at the path at which nodes have it.

    `folder` is the folder within the volume, empty for the whole volume. The embedded engine mounts nothing: its processes see the
    path as this machine has it.
    """

    claim: str
    path: str
    folder: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A task together with its place in a stage.

    `after` names the tasks of the stage that come before it. `fan_out` names the list of shards that the task `open` outputs
    (`shards` or `agents`); it is empty for a single task. `graph` has the tasks of a step that runs once for each of them; it is
    empty for other steps, and no step has both. `rules` are the rights that the task needs on the target. `files` are files beside
    the task, name → content, whose digests the task has. `claim` is the published folder, for a pod that must see it.
    """

    task: Task
    after: tuple[str, ...] = ()
    when: When = When.PASSED
    fan_out: str = ""
    rules: tuple["Rule", ...] = ()
    graph: tuple[GraphTask, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    claim: ClaimMount | None = None

    @property
    def name(self) -> str:
        """Return the task's name within its stage (snake_case)."""
        return self.task.name

    @property
    def digested(self) -> Object:
        """Return the fields that the plan's digest covers. A plan keeps its digest when a field that it does not use is added."""
        left_out = {"files"} | {name for name in ("graph", "claim") if not getattr(self, name)}
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in left_out}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rights on the target cluster, with the fields of a rule in a Kubernetes Role."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    """Namespaces in which the rights hold; empty means cluster-wide."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A sentence in the plan about a change that a stage makes; `where` names nodes (as ranges), releases or other places."""

    what: str
    where: str
    reboots: bool = False


_NOT_DIGESTED = ("shortcut", "downloads", "asked_if")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of a plan, as its builder makes it and as compiler and rendering read it.

    `gates` are the gate ids in running order without the judge's; `releases` are release ids of the catalog.
    """

    id: str
    title: str
    steps: tuple[Step, ...]
    gates: tuple[str, ...]
    changes: tuple[Change, ...]
    rollback: str
    releases: tuple[str, ...] = ()
    parallelism: int = 0
    """Largest number of tasks of the stage at the same time, over all shards; 0 means no limit of the stage's own."""
    approval: "Approval | None" = None
    asked_if: "ApprovalCondition | None" = None
    """Output of an earlier stage on which the approval is asked; None if it is always asked."""
    shortcut: Shortcut | None = None
    """The output by which the stage says that all later stages can be skipped; None if the stage never says so."""
    downloads: tuple[str, ...] = ()
    """Names of the stage's tasks that fetch over HTTP, whose pods get the proxies of the spec."""

    @property
    def digested(self) -> Object:
        """Return the fields that the plan's digest covers: all except those that only decide how the stage is rendered."""
        covered = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in _NOT_DIGESTED}
        return covered | {"steps": [step.digested for step in self.steps]}


@dataclass(frozen=True, kw_only=True)
class Approval:
    """A decision that the run waits for before a stage starts.

    `approvers` maps the names of persons to SSH public keys (none if a name is enough). `announced` is WEBHOOK (the run itself
    calls it), COMMAND (the process that follows the run starts it), or empty.
    """

    approvers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    timeout_seconds: int = 86400
    announced: str = ""


@dataclass(frozen=True, kw_only=True)
class ApprovalCondition:
    """A condition on which an approval is asked: the output `output` of a task of an earlier stage is `value`, also its default."""

    stage: str
    task: str
    output: str
    value: str


WEBHOOK, COMMAND = "webhook", "command"
"""Ways to announce an approval. The command runs on the machine that follows the run; the webhook's URL is a secret of the run."""


Builder = Callable[..., Stage | None]
"""Type of a stage module's `build(site)`, which returns None when the spec leaves the stage out."""


def judge_step(
    stage: str, checks: Iterable[Object], *, deadline: int = 600, rules: tuple[Rule, ...] = (), **arguments: object
) -> Step:
    """Return the task that decides a stage; it runs even if earlier tasks failed.

    Each of `checks` names a task with its gate, in running order. `rules` are the rights to cordon; without them the judge cordons
    no node.
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
    """Return a task with empty arguments and expectations by default; `deadline` is in seconds."""
    return Task(
        stage=stage, name=name, verb=verb, arguments=arguments or {}, expectations=expectations or {}, deadline_seconds=deadline
    )
