"""Commands about a cluster's schedule on Argo: schedule show, schedule suspend, schedule resume."""

from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo_options import HomeContext, HomeKubeconfig, Namespace
from workflows.cli.output import Format

Cluster = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cluster, as in its spec.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="A cluster's schedule on Argo: show it, suspend it, resume it.")
    group.command()(show)
    group.command()(suspend)
    group.command()(resume)
    app.add_typer(group, name="schedule")


def show(
    cluster: Cluster,
    form: Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")] = Format.TABLE,
    home: HomeKubeconfig = "",
    context: HomeContext = "",
    namespace: Namespace = "",
) -> int:
    """Show when the schedule starts runs, whether it is suspended, when it started one last, and what keeps it from that."""
    from workflows import bringup
    from workflows.cli import kubeconfigs, naming
    from workflows.engines.argo import starts

    naming.require(cluster, "cluster")
    place = kubeconfigs.home(home, context, namespace)
    there = starts.schedule(place, cluster, bringup.KIND)
    rows = {
        "schedule": "; ".join(there.spec.schedules) + f" {there.spec.timezone}",
        "suspended": "yes" if there.spec.suspend else "no",
        "last started": there.status.last_scheduled_time or "never",
        "going on": ", ".join(one.name for one in there.status.active) or "none",
        "problems": "; ".join(there.status.problems) or "none",
    }
    if form is Format.TABLE:
        output.lines([f"the schedule of {cluster} in namespace {place.namespace}"])
        output.lines(f"{name:<13} {value.strip()}" for name, value in rows.items())
    else:
        output.data({"cluster": cluster, "namespace": place.namespace, **{key.replace(" ", "_"): rows[key] for key in rows}}, form)
    return ExitCode.OK


def suspend(cluster: Cluster, home: HomeKubeconfig = "", context: HomeContext = "", namespace: Namespace = "") -> int:
    """Keep the schedule from starting runs; a run that goes on is left alone. The next installation leaves it suspended."""
    return _set(cluster, home, context, namespace, wanted=True)


def resume(cluster: Cluster, home: HomeKubeconfig = "", context: HomeContext = "", namespace: Namespace = "") -> int:
    """Let the schedule start runs again; runs that it missed meanwhile are not made up beyond its starting deadline."""
    return _set(cluster, home, context, namespace, wanted=False)


def _set(cluster: str, kubeconfig: str, context: str, namespace: str, *, wanted: bool) -> int:
    from workflows import bringup
    from workflows.cli import kubeconfigs, naming
    from workflows.engines.argo import starts

    naming.require(cluster, "cluster")
    place = kubeconfigs.home(kubeconfig, context, namespace)
    changed = starts.suspend(place, cluster, bringup.KIND, wanted=wanted)
    state = "suspended" if wanted else "not suspended"
    output.lines([f"the schedule of {cluster} {'is' if changed else 'was already'} {state} in namespace {place.namespace}"])
    return ExitCode.OK
