"""Types of the plan, as frozen data: stages in order with their tasks and digests, the hosts, and the releases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from steps.contract import fleet, task
from steps.contract.canonical import digest, digest_bytes
from workflows.catalog import PlannedRelease
from workflows.spec import Issue
from workflows.spec.acceptance.untested import UntestedPart
from workflows.spec.sections.schedule import EventTrigger, Schedule
from workflows.stages.host_access import SecretFile
from workflows.stages.stage import Stage


class PlanError(ValueError):
    """Exception: the spec or the requested operation cannot be planned; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Starts:
    """The schedule and the events by which Argo starts runs of a plan without a person.

    The plan's digest does not cover them, because the time of a start changes nothing of a run's work.
    """

    schedule: Schedule | None = None
    events: tuple[EventTrigger, ...] = ()
    issues: tuple[Issue, ...] = ()
    """Warnings caused by the schedule and the events, such as approvals that nobody hears of."""
    cache: str = ""
    """Build cache of a software stack, to which the commits that the schedule builds are limited; empty: none is named."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a run is given, as the compiler makes it and as rendering and the engines read it."""

    name: str
    owner: str
    revision: str
    target_uid: str
    accelerator: str
    """GPU product in lower case, for the simulated machines of a rehearsal; empty without GPUs."""
    built: Mapping[str, str | int | bool]
    """Properties of the machines that the spec states, for the simulated machines of a rehearsal: system, driver, NICs."""
    stages: tuple[Stage, ...]
    hosts: tuple[fleet.Host, ...]
    releases: tuple[PlannedRelease, ...]
    issues: tuple[Issue, ...]
    secrets: tuple[SecretFile, ...]
    """Files that the tasks may find in the secrets folder. The field `public` names those that anybody may read."""
    digest: str
    open_task: task.Task
    confirm_tasks: Mapping[str, task.Task]
    """Stage id → the task that verifies the approval before this stage."""
    end_tasks: tuple[task.Task, ...]
    announce_tasks: Mapping[str, task.Task] = field(default_factory=dict)
    """Stage id → the task that announces the approval before this stage by webhook."""
    tree: Mapping[str, str] = field(default_factory=dict)
    """Files that verb `publish` commits to Git, path → text; empty if the plan publishes nothing."""
    archives: Mapping[str, bytes] = field(default_factory=dict)
    """File name in the tasks folder → archive: the site's own Ansible roles, or the image recipe; tasks name them by digest."""
    public: frozenset[str] = frozenset()
    """Names of files among `secrets` that anybody may read, such as known hosts; on Argo a ConfigMap holds them, no Secret."""
    proxies: Mapping[str, str] = field(default_factory=dict)
    """Proxy variables for tasks that reach outside networks; outside the digest, because they change nothing of the work."""
    builder: str = ""
    """Image of pods that build, if the spec names it; otherwise it is a choice of the installation."""
    records: Mapping[str, str] = field(default_factory=dict)
    """File name → text of the records that `bringup render` writes for people; outside the digest."""
    untested: tuple[UntestedPart, ...] = ()
    """Tests of the planned stages that the spec rules out; the report's headline names them."""
    starts: Starts | None = None
    """Schedule and events; None for a narrowed plan (`only`, `until`, an operation), which must not replace the whole plan's."""

    @cached_property
    def tasks(self) -> tuple[task.Task, ...]:
        """Return all tasks in running order: `run.open`, the tasks of the stages and their approvals, `run.report`, `run.seal`."""
        inner: list[task.Task] = []
        for stage in self.stages:
            inner += self.approval_tasks(stage)
            inner += [step.task for step in stage.steps]
        return (self.open_task, *inner, *self.end_tasks)

    @cached_property
    def inputs(self) -> str:
        """Return a digest of all input of the plan's tasks, from which the names of the installed Argo objects are made.

        It covers `digest`, the archives beside the task files, and the proxies. An image recipe's archive holds more than what
        decides the build, namely the package mirror of the day and the recipe's commit, so it can change while `digest` stays.
        """
        beside = {name: digest_bytes(data) for name, data in self.archives.items()} | dict(self.proxies)
        return digest([self.digest, beside]) if beside else self.digest

    def approval_tasks(self, stage: Stage) -> tuple[task.Task, ...]:
        """Return the tasks of the approval before a stage: its announcement, if any, and the check of the answer; else none."""
        if stage.approval is None:
            return ()
        announcement = self.announce_tasks.get(stage.id)
        return (*([announcement] if announcement else []), self.confirm_tasks[stage.id])

    @cached_property
    def task_files(self) -> dict[str, bytes]:
        """Return the encoded tasks, file name → bytes. Raises TaskError for a task above 8 kB."""
        return {task.file_name(entry.stage, entry.name): task.encode(entry) for entry in self.tasks}
