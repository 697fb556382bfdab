"""Schedules and event bindings in the home cluster: find, suspend, resume, and delete those that the spec no longer has.

`suspend` belongs to whoever set it last. An installation writes the field only if the spec does, so a schedule that a person
suspended stays suspended when the next revision is installed.
"""

from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct, field

from steps.clients.kube.api import ApiError
from steps.errors import Refused
from workflows.engines.argo.home import Home
from workflows.engines.argo.workflow_objects import CLUSTER, PIPELINE, STARTS, Workflow
from workflows.render import from_git, starts
from workflows.render.bundle import Bundle

KINDS = ("cronworkflows", "workfloweventbindings")


class NoSchedule(ValueError):
    """Exception: the home cluster has no schedule of that name."""

    hint = "a schedule is a section of the spec; it is installed by `bringup run --engine argo`, or from `bringup render`"


class AmbiguousSchedule(ValueError):
    """Exception: several pipelines have a schedule of that name."""

    hint = "name one with --pipeline NAME"


class ScheduleChanged(ValueError):
    """Exception: another client changed the schedule at the same time."""

    hint = "look at it, then try again"


class _ScheduleMeta(Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _ScheduleSpec(Struct, frozen=True):
    """The spec of a schedule, reduced to the times at which it starts runs and whether it is suspended."""

    suspend: bool = False
    schedules: tuple[str, ...] = ()
    timezone: str = ""


class _ScheduleCondition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    message: str = ""


class ScheduleStatus(Struct, frozen=True, rename="camel"):
    """The controller's status of a schedule: the time of its last start, its unfinished Workflows, and its conditions."""

    last_scheduled_time: str | None = None
    active: tuple[_ScheduleMeta, ...] = ()
    conditions: tuple[_ScheduleCondition, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the conditions that keep the schedule from starting a run, as sentences."""
        return tuple(
            f"{condition.type}: {condition.message}"
            for condition in self.conditions
            if condition.status == "True" and condition.type != "Completed"
        )


class RunTrigger(Struct, frozen=True):
    """A CronWorkflow or a WorkflowEventBinding, reduced to the fields that are read here."""

    metadata: _ScheduleMeta = _ScheduleMeta()
    spec: _ScheduleSpec = field(default_factory=_ScheduleSpec)
    status: ScheduleStatus = field(default_factory=ScheduleStatus)


def delete_dropped(home: Home, cluster: str, bundle: Bundle) -> None:
    """Delete schedules and event bindings that the spec no longer has, first the accounts that only they use, last their templates.

    Kinds that this account may not list are left alone. Raises Refused if a deletion is forbidden.
    """
    kept = {manifest["metadata"]["name"] for manifest in bundle.starts or ()}
    labels = bundle.template["metadata"]["labels"]
    gone = {kind: [trigger_name for trigger_name in _ours(home, kind, labels) if trigger_name not in kept] for kind in KINDS}
    owners = {"workfloweventbindings": starts.account_name(cluster)}
    # only a schedule that reads Git has an account; a cluster may have the same name
    if labels[PIPELINE] in from_git.KINDS:
        owners["cronworkflows"] = from_git.account_name(cluster, labels[PIPELINE])
    for kind, owner in owners.items():
        if gone[kind] and owner not in kept:
            home.delete(home.core("serviceaccounts", owner))  # first, as this revokes its token
    for kind, stale in gone.items():
        for name in stale:
            home.delete(home.argo(kind, name))
    if gone["cronworkflows"] and "cronworkflows" in owners:
        # few accounts may delete templates, and without its account this one starts nothing
        with suppress(Refused):
            home.delete(home.argo("workflowtemplates", from_git.template_name(cluster, labels[PIPELINE])))


def _ours(home: Home, kind: str, labels: dict[str, str]) -> list[str]:
    selector = ",".join(f"{key}={labels[key]}" for key in (CLUSTER, PIPELINE))
    try:
        triggers = home.ask(lambda kube: kube.list(home.argo(kind), RunTrigger, labels=selector))
    except Refused:
        return []
    return [trigger.metadata.name for trigger in triggers or ()]


def schedule(home: Home, cluster: str, kind: str) -> RunTrigger:
    """Return the CronWorkflow of a cluster for the pipeline `kind`. Raises NoSchedule, or Refused if it may not be read."""
    trigger = _find(home, cluster, kind)
    if trigger is None:
        raise NoSchedule(f"namespace {home.namespace} of the home cluster has no schedule of {cluster}")
    return trigger


def _find(home: Home, cluster: str, kind: str) -> RunTrigger | None:
    path = home.argo("cronworkflows", starts.cron_name(kind, cluster))
    return home.ask(lambda kube: kube.get(path, RunTrigger))


def last_start(home: Home, name: str, kind: str) -> Workflow | None:
    """Return the newest Workflow that a schedule created to start a run of this pipeline and spec, or None if there is none."""
    starters = home.ask(lambda kube: kube.list(home.workflows(), Workflow, labels=f"{STARTS}={kind},{CLUSTER}={name}")) or ()
    return max(starters, key=lambda workflow: (workflow.metadata.creation_timestamp, workflow.metadata.name), default=None)


def pipeline_of(home: Home, name: str, kinds: Sequence[str]) -> str:
    """Return the one pipeline among `kinds` that has a schedule of that name. Raises NoSchedule, AmbiguousSchedule, Refused."""
    pipelines = [kind for kind in kinds if _find(home, name, kind) is not None]
    if not pipelines:
        raise NoSchedule(f"namespace {home.namespace} of the home cluster has no schedule of {name}")
    if len(pipelines) > 1:
        raise AmbiguousSchedule(f"there are schedules of {' and '.join(pipelines)} with the name {name}")
    return pipelines[0]


def suspend(home: Home, cluster: str, kind: str, *, suspended: bool) -> bool:
    """Suspend a cluster's schedule, or resume it if `suspended` is False; return True if that changed the schedule.

    Resuming removes the field instead of writing false, so that no field manager owns it and a spec with `suspend: true` can be
    installed again. Raises NoSchedule, ScheduleChanged, Refused.
    """
    path, current = home.argo("cronworkflows", starts.cron_name(kind, cluster)), schedule(home, cluster, kind)
    if current.spec.suspend == suspended:
        return False
    patch = {"metadata": {"resourceVersion": current.metadata.resource_version}, "spec": {"suspend": True if suspended else None}}
    try:
        home.ask(lambda kube: kube.merge(path, patch))
    except ApiError as error:
        if error.status != 409:
            raise
        raise ScheduleChanged(f"the schedule of {cluster} was changed meanwhile") from error
    return True
