"""Commands about a cluster that stands: add-node, replace-node, upgrade, rollback, reset. Each is a run with a plan of its own."""

import sys
from typing import Annotated

import typer

from steps.contract.operation import Kind, Operation
from workflows.cli import output
from workflows.cli.argo.options import placed
from workflows.cli.runs import operations, starting
from workflows.cli.specs import pipelines

Spec = Annotated[str, typer.Argument(help="Spec file, or the name of an example.")]
Chosen = Annotated[list[str], typer.Option("--hosts", metavar="RANGE", help="Which hosts, as in gpu[017-018]; repeat for more.")]
Some = Annotated[list[str] | None, typer.Option("--hosts", metavar="RANGE", help="Only these hosts, as in gpu[017-018].")]
Until = Annotated[str, typer.Option("--until", help="Up to and with this stage.")]
Reuse = Annotated[str, typer.Option("--reuse", help="Reuse what this earlier run proved and still holds.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (add_node, replace_node, upgrade, rollback, reset):
        app.command(command.__name__.replace("_", "-"))(placed(command, starting.Place))


def add_node(hosts: Chosen, spec: Spec = "cluster.yaml", until: Until = "", reuse: Reuse = "none", *, place: starting.Place) -> int:
    """Bring hosts that the spec has by now into the cluster that runs; no other is touched, and gates look at all of them."""
    operation = Operation(kind=Kind.ADD_NODE, hosts=operations.names(hosts))
    return starting.start(spec, place, pipelines.Wish(reuse=reuse, until=until, operation=operation))


def replace_node(
    hosts: Chosen, spec: Spec = "cluster.yaml", until: Until = "", reuse: Reuse = "none", *, place: starting.Place
) -> int:
    """Bring new machines in under the names of old ones, of which the cluster forgets Node and etcd member before they join."""
    operation = Operation(kind=Kind.REPLACE_NODE, hosts=operations.names(hosts))
    return starting.start(spec, place, pipelines.Wish(reuse=reuse, until=until, operation=operation))


def upgrade(spec: Spec = "cluster.yaml", *, place: starting.Place) -> int:
    """Bring RKE2 to the spec's version: a snapshot of etcd, servers one at a time, agents drained in batches; nothing else."""
    operation = Operation(kind=Kind.UPGRADE)
    return starting.start(spec, place, pipelines.Wish(only=operations.only(operation), operation=operation))


def rollback(
    spec: Spec = "cluster.yaml",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    *,
    place: starting.Place,
) -> int:
    """Take RKE2 back to the spec's version, the one before the last upgrade: all servers at once, with etcd as it was before it.

    Every server must have kept that release and one a snapshot from before the upgrade; else nothing is stopped.
    """
    operation = Operation(kind=Kind.ROLLBACK)
    if not yes:
        _ask(
            spec,
            operation,
            "rollback stops all servers of cluster {name} and sets its etcd back to before the last upgrade: what was "
            "written since is lost",
        )
    return starting.start(spec, place, pipelines.Wish(only=operations.only(operation), operation=operation))


def reset(
    spec: Spec = "cluster.yaml",
    hosts: Some = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    *,
    place: starting.Place,
) -> int:
    """Take RKE2 off the machines again, with all that it and its pods left there; data of the cluster is lost."""
    operation = Operation(kind=Kind.RESET, hosts=operations.names(hosts or ()))
    if not yes:
        which = f"hosts {', '.join(hosts)}" if hosts else "all {hosts}"
        _ask(spec, operation, f"reset takes RKE2, its pods and their data off {which} of cluster {{name}}")
    return starting.start(spec, place, pipelines.Wish(operation=operation))


def _ask(spec: str, operation: Operation, what: str) -> None:
    """Whoever takes a cluster back types its name; `what` is done, with `{name}` and `{hosts}` for the cluster's.

    Raises typer.BadParameter where nobody is there to ask, and for another name.
    """
    from workflows.cli.specs import planning, sources

    planning.made(spec, operations.only(operation), "", operation)  # what is refused is not asked about
    loaded = sources.read(spec)[1]
    said = what.format(name=loaded.name, hosts=output.count(len(loaded.machines), "host"))
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{said}, and nobody is here to ask: add --yes")
    output.lines([said])
    if typer.prompt("type the name of the cluster to go on") != loaded.name:
        raise typer.BadParameter(f"that is not {loaded.name}, the name of the cluster: nothing was changed")
