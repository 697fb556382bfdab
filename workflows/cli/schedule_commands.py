"""Commands about the schedule of a cluster or a node image on Argo: schedule show, schedule suspend, schedule resume."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.command_sections import SectionedGroup
from workflows.cli.options import HomeOptions, Output, placed
from workflows.cli.output import Format

if TYPE_CHECKING:
    from workflows.engines.argo.home import Home
    from workflows.engines.argo.workflow_objects import Workflow

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cluster or of the node image, as in its spec.")]


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(HomeOptions):
    """Options that say where a schedule is: home cluster, namespace, and pipeline."""

    pipeline: Annotated[
        str, typer.Option("--pipeline", metavar="NAME", help="bringup or image, where both have a schedule of that name.")
    ] = ""


def register(app: typer.Typer) -> None:
    """Add the group `schedule` to the application."""
    group = typer.Typer(cls=SectionedGroup, no_args_is_help=True, help="A schedule on Argo: show it, suspend it, resume it.")
    for command in (show, suspend, resume):
        group.command()(placed(command, ScheduleOptions))
    app.add_typer(group, name="schedule")


def show(name: Name, form: Output = Format.TABLE, *, place: ScheduleOptions) -> int:
    """Show when the schedule starts runs, whether it is suspended, when it last started one, and what hinders it."""
    from workflows.engines.argo import schedules, submission

    home, kind = _where(name, place)
    schedule, last = schedules.schedule(home, name, kind), schedules.last_start(home, name, kind)
    runs = [unfinished.metadata.name for unfinished in submission.unfinished_runs(home, name, kind)] if last else []
    active = [unfinished.name for unfinished in schedule.status.active]
    rows = {
        "schedule": "; ".join(schedule.spec.schedules) + f" {schedule.spec.timezone}",
        "suspended": "yes" if schedule.spec.suspend else "no",
        "last started": schedule.status.last_scheduled_time or "never",
        "going on": ", ".join(dict.fromkeys([*active, *runs])) or "none",
        "problems": "; ".join([*schedule.status.problems, *_failed(last)]) or "none",
    }
    if form is Format.TABLE:
        output.lines([f"the schedule of {name} in namespace {home.namespace}"])
        output.lines(f"{key:<13} {value.strip()}" for key, value in rows.items())
    else:
        values = {key.replace(" ", "_"): value for key, value in rows.items()}
        output.data({"cluster": name, "pipeline": kind, "namespace": home.namespace, **values}, form)
    return ExitCode.OK


def _failed(last: "Workflow | None") -> list[str]:
    """Return a sentence on why the schedule's last start started no run; empty if it did not fail."""
    if last is None or not last.finished or last.status.phase == "Succeeded":
        return []
    name, ended = last.metadata.name, f"{last.status.phase}: {_why(last)}".rstrip(": ")
    return [f"{name}, which was to start a run, ended as {ended} (bringup logs --run {name})"]


def _why(last: "Workflow") -> str:
    """Return the reason in the newest pod's termination message, else Argo's message, which is about retries only."""
    from steps.contract import last_word

    pods = [node for node in (last.status.nodes or {}).values() if node.type == "Pod" and node.message]
    last_words = last_word.of_node(max(pods, key=lambda node: node.started_at or "").message) if pods else None
    return last_words.reason if last_words and last_words.reason else last.status.message


def suspend(name: Name, *, place: ScheduleOptions) -> int:
    """Suspend the schedule, so that it starts no runs. A run that has started goes on. Installing again keeps it suspended."""
    return _set(name, place, suspended=True)


def resume(name: Name, *, place: ScheduleOptions) -> int:
    """Let the schedule start runs again. Missed runs are not made up for beyond the schedule's starting deadline."""
    return _set(name, place, suspended=False)


def _where(name: str, place: ScheduleOptions) -> "tuple[Home, str]":
    """Return the home cluster and the kind of pipeline of a schedule. Raises NotAName, BadParameter, NoHomeCluster, NoSchedule."""
    from workflows import bringup, image
    from workflows.app import kubeconfigs, name_checks
    from workflows.engines.argo import schedules

    known = (bringup.KIND, image.KIND)
    if place.pipeline and place.pipeline not in known:
        raise typer.BadParameter(f"--pipeline {place.pipeline!r} has no schedules; use {' or '.join(known)}")
    name_checks.require(name, "cluster")
    home = kubeconfigs.home(place.home_kubeconfig, place.home_context, place.namespace)
    return home, place.pipeline or schedules.pipeline_of(home, name, known)


def _set(name: str, place: ScheduleOptions, *, suspended: bool) -> int:
    from workflows.engines.argo import schedules

    home, kind = _where(name, place)
    changed = schedules.suspend(home, name, kind, suspended=suspended)
    state = "suspended" if suspended else "not suspended"
    output.lines([f"the schedule of {name} {'is' if changed else 'was already'} {state} in namespace {home.namespace}"])
    return ExitCode.OK
