"""The plan as frozen data: stages in order with their tasks and digests, the fleet, and the releases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from steps.contract import fleet, task
from steps.contract.canonical import digest, digest_bytes
from workflows.catalog import PlannedRelease
from workflows.spec import Issue
from workflows.spec.schedule import EventTrigger, Schedule
from workflows.stages.host_access import SecretFile
from workflows.stages.stage import Stage


class PlanError(ValueError):
    """Error for a spec that cannot be planned; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Starts:
    """Schedule and events that start runs without a person.

    They are outside the plan's digest: the time at which a run starts changes nothing of its work.
    """

    schedule: Schedule | None = None
    events: tuple[EventTrigger, ...] = ()
    issues: tuple[Issue, ...] = ()
    """Warnings that the spec has because of schedule and events alone, such as approvals that nobody hears of."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a run is given. `tasks` are those of the stages and of the run itself (`run.open`, `run.report`,
    `run.seal`).
    """

    name: str
    owner: str
    revision: str
    target_uid: str
    accelerator: str
    """GPU product in lower case, for the machines of a rehearsal; empty without GPUs."""
    built: Mapping[str, str | int | bool]
    """Further statements of the spec about its machines, for a rehearsal: operating system, driver, network adapters."""
    stages: tuple[Stage, ...]
    hosts: tuple[fleet.Host, ...]
    releases: tuple[PlannedRelease, ...]
    issues: tuple[Issue, ...]
    secrets: tuple[SecretFile, ...]
    """Files of the secrets folder; those of `public` among them are no secrets."""
    digest: str
    open_task: task.Task
    confirm_tasks: Mapping[str, task.Task]
    """Tasks that verify approvals, by the stage that waits."""
    end_tasks: tuple[task.Task, ...]
    announce_tasks: Mapping[str, task.Task] = field(default_factory=dict)
    """Tasks that announce approvals by webhook, by the stage that waits."""
    tree: Mapping[str, str] = field(default_factory=dict)
    """Files that verb `publish` commits to Git, path → text; empty if the plan publishes nothing."""
    archives: Mapping[str, bytes] = field(default_factory=dict)
    """The site's own roles, file name in the tasks folder → archive; tasks name their digests."""
    public: frozenset[str] = frozenset()
    """Names of secret files that anybody may read, such as known hosts; on Argo they lie in a ConfigMap."""
    proxies: Mapping[str, str] = field(default_factory=dict)
    """Proxy variables of tasks that reach outside networks. They are outside the digest: they change nothing of the work."""
    starts: Starts | None = None
    """Schedule and events; None for a plan narrowed by `only` or `until`, which leaves those of the whole plan alone."""

    @cached_property
    def tasks(self) -> tuple[task.Task, ...]:
        """Return all tasks in running order."""
        inner: list[task.Task] = []
        for stage in self.stages:
            inner += self.approval_tasks(stage)
            inner += [step.task for step in stage.steps]
        return (self.open_task, *inner, *self.end_tasks)

    @cached_property
    def inputs(self) -> str:
        """Return the digest of everything that the plan's tasks find; names of installed objects are made from it.

        The digest covers `digest`, the files beside the tasks, and the proxies. A recipe's files hold more than decides the build:
        the mirror of the day, and the commit that the recipe comes from.
        """
        beside = {name: digest_bytes(data) for name, data in self.archives.items()} | dict(self.proxies)
        return digest([self.digest, beside]) if beside else self.digest

    def approval_tasks(self, stage: Stage) -> tuple[task.Task, ...]:
        """Return the tasks of the approval before a stage, without the wait: the announcement, and the check of the answer."""
        if stage.approval is None:
            return ()
        announcement = self.announce_tasks.get(stage.id)
        return (*([announcement] if announcement else []), self.confirm_tasks[stage.id])

    @cached_property
    def task_files(self) -> dict[str, bytes]:
        """Return the tasks folder, file name → bytes. Raises TaskError for a task above 8 kB."""
        return {task.file_name(entry.stage, entry.name): task.encode(entry) for entry in self.tasks}
