"""Commands that change an existing cluster: add-node, replace-node, upgrade, rollback, reset. Each is a run with its own plan."""

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
    """Bring hosts that were added to the spec into the running cluster. No other host is changed, but gates check all of them."""
    operation = Operation(kind=Kind.ADD_NODE, hosts=operations.names(hosts))
    return starting.start(spec, place, pipelines.Wish(reuse=reuse, until=until, operation=operation))


def replace_node(
    hosts: Chosen, spec: Spec = "cluster.yaml", until: Until = "", reuse: Reuse = "none", *, place: starting.Place
) -> int:
    """Bring in new machines under the names of old ones. The cluster first deletes the Node and etcd member of each old machine."""
    operation = Operation(kind=Kind.REPLACE_NODE, hosts=operations.names(hosts))
    return starting.start(spec, place, pipelines.Wish(reuse=reuse, until=until, operation=operation))


def upgrade(spec: Spec = "cluster.yaml", *, place: starting.Place) -> int:
    """Upgrade RKE2 to the spec's version: snapshot of etcd, servers one at a time, agents drained in batches; nothing else."""
    operation = Operation(kind=Kind.UPGRADE)
    return starting.start(spec, place, pipelines.Wish(only=operations.only(operation), operation=operation))


def rollback(
    spec: Spec = "cluster.yaml",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    *,
    place: starting.Place,
) -> int:
    """Take RKE2 back to the version before the last upgrade, as the spec names it: all servers at once, with etcd as it was then.

    Every server must still have that release, and one of them a snapshot from before the upgrade; otherwise nothing is stopped.
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
    """Remove RKE2 from the machines, with everything that it and its pods left there. The cluster's data is lost."""
    operation = Operation(kind=Kind.RESET, hosts=operations.names(hosts or ()))
    if not yes:
        which = f"hosts {', '.join(hosts)}" if hosts else "all {hosts}"
        _ask(spec, operation, f"reset takes RKE2, its pods and their data off {which} of cluster {{name}}")
    return starting.start(spec, place, pipelines.Wish(operation=operation))


def _ask(spec: str, operation: Operation, what: str) -> None:
    """Ask for the cluster's name before a destructive operation. `what` describes it, with `{name}` and `{hosts}` to fill in.

    Raises typer.BadParameter without a terminal, or for another name.
    """
    from workflows.cli.specs import planning, sources

    planning.made(spec, operations.only(operation), "", operation)  # refuse before asking
    loaded = sources.read(spec)[1]
    question = what.format(name=loaded.name, hosts=output.count(len(loaded.machines), "host"))
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question}, and nobody is here to ask: add --yes")
    output.lines([question])
    if typer.prompt("type the name of the cluster to go on") != loaded.name:
        raise typer.BadParameter(f"that is not {loaded.name}, the name of the cluster: nothing was changed")
