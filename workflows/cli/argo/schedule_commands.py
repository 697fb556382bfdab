"""Commands about the schedule of a cluster or of a node image on Argo: schedule show, schedule suspend, schedule resume."""

from typing import TYPE_CHECKING, Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo.options import HomeContext, HomeKubeconfig, Namespace
from workflows.cli.output import Format

if TYPE_CHECKING:
    from workflows.engines.argo.home import Home
    from workflows.engines.argo.objects import Workflow

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cluster or of the node image, as in its spec.")]
Pipeline = Annotated[
    str, typer.Option("--pipeline", metavar="NAME", help="bringup or image, where both have a schedule of that name.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="A schedule on Argo: show it, suspend it, resume it.")
    group.command()(show)
    group.command()(suspend)
    group.command()(resume)
    app.add_typer(group, name="schedule")


def show(
    name: Name,
    form: Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")] = Format.TABLE,
    home: HomeKubeconfig = "",
    context: HomeContext = "",
    namespace: Namespace = "",
    pipeline: Pipeline = "",
) -> int:
    """Show when the schedule starts runs, whether it is suspended, when it started one last, and what keeps it from that."""
    from workflows.engines.argo import going_on, starts

    place, kind = _where(name, home, context, namespace, pipeline)
    there, last = starts.schedule(place, name, kind), starts.last_start(place, name, kind)
    runs = [one.metadata.name for one in going_on.runs(place, name, kind)] if last else []
    active = [one.name for one in there.status.active]
    rows = {
        "schedule": "; ".join(there.spec.schedules) + f" {there.spec.timezone}",
        "suspended": "yes" if there.spec.suspend else "no",
        "last started": there.status.last_scheduled_time or "never",
        "going on": ", ".join(dict.fromkeys([*active, *runs])) or "none",
        "problems": "; ".join([*there.status.problems, *_failed(last)]) or "none",
    }
    if form is Format.TABLE:
        output.lines([f"the schedule of {name} in namespace {place.namespace}"])
        output.lines(f"{key:<13} {value.strip()}" for key, value in rows.items())
    else:
        told = {key.replace(" ", "_"): value for key, value in rows.items()}
        output.data({"cluster": name, "pipeline": kind, "namespace": place.namespace, **told}, form)
    return ExitCode.OK


def _failed(last: "Workflow | None") -> list[str]:
    """Why the last start started no run, if so."""
    if last is None or not last.finished or last.status.phase == "Succeeded":
        return []
    name, ended = last.metadata.name, f"{last.status.phase}: {_why(last)}".rstrip(": ")
    return [f"{name}, which was to start a run, ended as {ended} (bringup logs --run {name})"]


def _why(last: "Workflow") -> str:
    """What the newest of its pods has said; else what Argo says, which is of retries alone."""
    from steps.contract import last_word

    pods = [node for node in (last.status.nodes or {}).values() if node.type == "Pod" and node.message]
    said = last_word.of_node(max(pods, key=lambda node: node.started_at or "").message) if pods else None
    return said.reason if said and said.reason else last.status.message


def suspend(
    name: Name, home: HomeKubeconfig = "", context: HomeContext = "", namespace: Namespace = "", pipeline: Pipeline = ""
) -> int:
    """Keep the schedule from starting runs; a run that goes on is left alone. The next installation leaves it suspended."""
    return _set(name, _where(name, home, context, namespace, pipeline), wanted=True)


def resume(
    name: Name, home: HomeKubeconfig = "", context: HomeContext = "", namespace: Namespace = "", pipeline: Pipeline = ""
) -> int:
    """Let the schedule start runs again; runs that it missed meanwhile are not made up beyond its starting deadline."""
    return _set(name, _where(name, home, context, namespace, pipeline), wanted=False)


def _where(name: str, kubeconfig: str, context: str, namespace: str, pipeline: str) -> "tuple[Home, str]":
    """The home cluster, and the pipeline whose schedule is meant. Raises NotAName, BadParameter, NoHomeCluster, NoSchedule."""
    from workflows import bringup, image
    from workflows.cli import kubeconfigs, naming
    from workflows.engines.argo import starts

    known = (bringup.KIND, image.KIND)
    if pipeline and pipeline not in known:
        raise typer.BadParameter(f"--pipeline {pipeline!r} has no schedules; use {' or '.join(known)}")
    naming.require(name, "cluster")
    place = kubeconfigs.home(kubeconfig, context, namespace)
    return place, pipeline or starts.kind_of(place, name, known)


def _set(name: str, where: "tuple[Home, str]", *, wanted: bool) -> int:
    from workflows.engines.argo import starts

    place, kind = where
    changed = starts.suspend(place, name, kind, wanted=wanted)
    state = "suspended" if wanted else "not suspended"
    output.lines([f"the schedule of {name} {'is' if changed else 'was already'} {state} in namespace {place.namespace}"])
    return ExitCode.OK
