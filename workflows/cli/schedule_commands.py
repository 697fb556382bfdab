"""Commands about a cluster's schedule on Argo: schedule suspend, schedule resume."""

from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo_options import HomeContext, HomeKubeconfig, Namespace

Cluster = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cluster, as in its spec.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="A cluster's schedule on Argo: suspend it, resume it.")
    group.command()(suspend)
    group.command()(resume)
    app.add_typer(group, name="schedule")


def suspend(cluster: Cluster, home: HomeKubeconfig = "", context: HomeContext = "", namespace: Namespace = "") -> int:
    """Keep the schedule from starting runs; a run that goes on is left alone. The next installation leaves it suspended."""
    return _set(cluster, home, context, namespace, wanted=True)


def resume(cluster: Cluster, home: HomeKubeconfig = "", context: HomeContext = "", namespace: Namespace = "") -> int:
    """Let the schedule start runs again; runs that it missed meanwhile are not made up beyond its starting deadline."""
    return _set(cluster, home, context, namespace, wanted=False)


def _set(cluster: str, kubeconfig: str, context: str, namespace: str, *, wanted: bool) -> int:
    from workflows import bringup
    from workflows.cli import kubeconfigs
    from workflows.engines.argo import starts

    place = kubeconfigs.home(kubeconfig, context, namespace)
    changed = starts.suspend(place, cluster, bringup.KIND, wanted=wanted)
    state = "suspended" if wanted else "not suspended"
    output.lines([f"the schedule of {cluster} {'is' if changed else 'was already'} {state} in namespace {place.namespace}"])
    return ExitCode.OK
