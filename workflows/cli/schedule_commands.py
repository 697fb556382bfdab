"""Commands about the schedule of a cluster or a node image on Argo: schedule show, schedule suspend, schedule resume."""

from dataclasses import dataclass
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.command_sections import SectionedGroup
from workflows.cli.options import HomeOptions, Output, placed
from workflows.cli.output import Format

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cluster or of the node image, as in its spec.")]


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(HomeOptions):
    """Options that say where a schedule is: home cluster, namespace, and pipeline."""

    pipeline: Annotated[
        str, typer.Option("--pipeline", metavar="NAME", help="bringup, image or stack, where several have a schedule of that name.")
    ] = ""


def register(app: typer.Typer) -> None:
    """Add the group `schedule` to the application."""
    group = typer.Typer(cls=SectionedGroup, no_args_is_help=True, help="A schedule on Argo: show it, suspend it, resume it.")
    for command in (show, suspend, resume):
        group.command()(placed(command, ScheduleOptions))
    app.add_typer(group, name="schedule")


def show(name: Name, form: Output = Format.TABLE, *, place: ScheduleOptions) -> int:
    """Show when the schedule starts runs, whether it is suspended, when it last started one, and what hinders it."""
    from workflows.app.runs import argo_installations as installations

    home, kind = installations.find_schedule(name, place.pipeline, place.home_kubeconfig, place.home_context, place.namespace)
    rows = installations.status(home, name, kind)
    if form is Format.TABLE:
        output.lines([f"the schedule of {name} in namespace {home.namespace}"])
        output.lines(f"{key:<13} {value.strip()}" for key, value in rows.items())
    else:
        values = {key.replace(" ", "_"): value for key, value in rows.items()}
        output.data({"cluster": name, "pipeline": kind, "namespace": home.namespace, **values}, form)
    return ExitCode.OK


def suspend(name: Name, *, place: ScheduleOptions) -> int:
    """Suspend the schedule, so that it starts no runs. A run that has started goes on. Installing again keeps it suspended."""
    return _set(name, place, suspended=True)


def resume(name: Name, *, place: ScheduleOptions) -> int:
    """Let the schedule start runs again. Missed runs are not made up for beyond the schedule's starting deadline."""
    return _set(name, place, suspended=False)


def _set(name: str, place: ScheduleOptions, *, suspended: bool) -> int:
    from workflows.app.runs import argo_installations as installations

    home, kind = installations.find_schedule(name, place.pipeline, place.home_kubeconfig, place.home_context, place.namespace)
    changed = installations.suspend(home, name, kind, suspended=suspended)
    state = "suspended" if suspended else "not suspended"
    output.lines([f"the schedule of {name} {'is' if changed else 'was already'} {state} in namespace {home.namespace}"])
    return ExitCode.OK
