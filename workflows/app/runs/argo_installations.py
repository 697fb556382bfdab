"""Schedules and plans that are installed in the home cluster: show, suspend and resume a schedule, and remove old plans."""

from datetime import UTC, datetime

from steps.contract.runs import last_word
from workflows import bringup, image, stack
from workflows.app import kubeconfigs, name_checks
from workflows.app.run_options import RunLocation, UsageError
from workflows.engines.argo import installer, schedules, submission
from workflows.engines.argo.home import Home
from workflows.engines.argo.workflow_objects import Workflow

_SCHEDULED = (bringup.KIND, image.KIND, stack.KIND)


def find_schedule(name: str, pipeline: str, kubeconfig: str, context: str, namespace: str) -> tuple[Home, str]:
    """Return the home cluster and the kind of pipeline of a schedule.

    Raises NotAName, UsageError, NoHomeCluster, NoSchedule, AmbiguousSchedule.
    """
    if pipeline and pipeline not in _SCHEDULED:
        raise UsageError(f"--pipeline {pipeline!r} has no schedules; use {' or '.join(_SCHEDULED)}")
    name_checks.require(name, "cluster")
    home = kubeconfigs.home(kubeconfig, context, namespace)
    return home, pipeline or schedules.pipeline_of(home, name, _SCHEDULED)


def status(home: Home, name: str, kind: str) -> dict[str, str]:
    """Return the rows of `schedule show`. Raises NoSchedule, or Refused if it may not be read."""
    schedule, last = schedules.schedule(home, name, kind), schedules.last_start(home, name, kind)
    runs = [unfinished.metadata.name for unfinished in submission.unfinished_runs(home, name, kind)] if last else []
    active = [unfinished.name for unfinished in schedule.status.active]
    return {
        "schedule": "; ".join(schedule.spec.schedules) + f" {schedule.spec.timezone}",
        "suspended": "yes" if schedule.spec.suspend else "no",
        "last started": schedule.status.last_scheduled_time or "never",
        "going on": ", ".join(dict.fromkeys([*active, *runs])) or "none",
        "problems": "; ".join([*schedule.status.problems, *_failed(last)]) or "none",
    }


def _failed(last: Workflow | None) -> list[str]:
    """Return a sentence on why the schedule's last start started no run; empty if it did not fail."""
    if last is None or not last.finished or last.status.phase == "Succeeded":
        return []
    name, ended = last.metadata.name, f"{last.status.phase}: {_why(last)}".rstrip(": ")
    return [f"{name}, which was to start a run, ended as {ended} (bringup logs --run {name})"]


def _why(last: Workflow) -> str:
    """Return the reason in the newest pod's termination message, else Argo's message, which is about retries only."""
    pods = [node for node in (last.status.nodes or {}).values() if node.type == "Pod" and node.message]
    last_words = last_word.of_node(max(pods, key=lambda node: node.started_at or "").message) if pods else None
    return last_words.reason if last_words and last_words.reason else last.status.message


def suspend(home: Home, name: str, kind: str, *, suspended: bool) -> bool:
    """Suspend a schedule, or resume it if `suspended` is False; return True if that changed it (see `schedules.suspend`)."""
    return schedules.suspend(home, name, kind, suspended=suspended)


def remove_old_plans(place: RunLocation) -> tuple[str, list[str]]:
    """Remove plans that nothing refers to (see `installer.remove`); return the namespace and the names of their templates."""
    home = kubeconfigs.home(place.home_kubeconfig, place.home_context, place.namespace)
    return home.namespace, installer.remove(home, datetime.now(UTC))
