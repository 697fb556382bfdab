"""The plan: stages in order with their tasks and digests, the fleet, and the releases; frozen data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from steps.contract import fleet, task
from steps.contract.canonical import digest, digest_bytes
from workflows.catalog import Release
from workflows.spec import Issue
from workflows.spec.schedule import Event, Schedule
from workflows.stages.access import SecretFile
from workflows.stages.stage import Stage


class PlanError(ValueError):
    """The spec cannot be planned; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Starts:
    """What starts runs of a plan without a person. No part of its digest: when a run starts changes nothing of what it does."""

    schedule: Schedule | None = None
    events: tuple[Event, ...] = ()
    issues: tuple[Issue, ...] = ()
    """What such runs would ask of people who are not told: warnings that the spec has because of schedule and events alone."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a run is told. `tasks` are those of the stages and of the run itself (`run.open`, `run.report`, `run.seal`)."""

    name: str
    owner: str
    revision: str
    target_uid: str
    accelerator: str
    """GPU product in lower case, for the machines of a rehearsal; empty without GPUs."""
    built: Mapping[str, str | int | bool]
    """What else the spec says of its machines, for those of a rehearsal: operating system, driver, network adapters."""
    stages: tuple[Stage, ...]
    hosts: tuple[fleet.Host, ...]
    releases: tuple[Release, ...]
    issues: tuple[Issue, ...]
    secrets: tuple[SecretFile, ...]
    """Files of the secrets folder; those of `public` among them are no secrets."""
    digest: str
    open_task: task.Task
    confirm_tasks: Mapping[str, task.Task]
    """By the stage that waits for the approval."""
    end_tasks: tuple[task.Task, ...]
    announce_tasks: Mapping[str, task.Task] = field(default_factory=dict)
    """Of approvals that a webhook hears of, by the stage that waits."""
    tree: Mapping[str, str] = field(default_factory=dict)
    """What verb `publish` commits to Git, path → text; empty where Argo CD does not deliver, or this plan does not publish."""
    archives: Mapping[str, bytes] = field(default_factory=dict)
    """The site's own roles, file name in the tasks folder → archive; tasks name their digests."""
    public: frozenset[str] = frozenset()
    """Names of secret files that anybody may read, as known hosts, which on Argo travel in a ConfigMap."""
    proxies: Mapping[str, str] = field(default_factory=dict)
    """Variables of the tasks that reach what lies outside. No part of the digest: they change nothing of what is done."""
    starts: Starts | None = None
    """None for a plan that `only` or `until` narrowed: what starts the whole one stays as it is."""

    @cached_property
    def tasks(self) -> tuple[task.Task, ...]:
        """All tasks in running order."""
        inner: list[task.Task] = []
        for stage in self.stages:
            inner += self.approval_tasks(stage)
            inner += [step.task for step in stage.steps]
        return (self.open_task, *inner, *self.end_tasks)

    @cached_property
    def inputs(self) -> str:
        """Digest of all that its tasks find, which names it where it is installed: `digest`, and what lies beside them. There a
        recipe has more than decides what is built: the mirror of the day, and the commit that it comes from; and what its pods
        are told of proxies."""
        found = {name: digest_bytes(data) for name, data in self.archives.items()} | dict(self.proxies)
        return digest([self.digest, found]) if found else self.digest

    def approval_tasks(self, stage: Stage) -> tuple[task.Task, ...]:
        """What the approval before a stage consists of, the wait left out: who announces it, who checks the answer."""
        if stage.approval is None:
            return ()
        told = self.announce_tasks.get(stage.id)
        return (*([told] if told else []), self.confirm_tasks[stage.id])

    @cached_property
    def task_files(self) -> dict[str, bytes]:
        """The tasks folder: file name → bytes. Raises TaskError for a task above 8 kB."""
        return {task.file_name(one.stage, one.name): task.encode(one) for one in self.tasks}
