"""Commands that change an existing cluster: add-node, replace-node, upgrade, rollback, reset. Each is a run with its own plan."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from steps.contract.plain_text import count
from steps.contract.runs.operation import Operation, OperationKind
from workflows.app.run_options import Wish
from workflows.cli import output
from workflows.cli.options import RunOptions, Spec, Until, pipeline_of, placed

Chosen = Annotated[list[str], typer.Option("--hosts", metavar="RANGE", help="Which hosts, as in gpu[017-018]; repeat for more.")]
Some = Annotated[list[str] | None, typer.Option("--hosts", metavar="RANGE", help="Only these hosts, as in gpu[017-018].")]
Reuse = Annotated[str, typer.Option("--reuse", help="Reuse what this earlier run proved and still holds.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands to the typer application."""
    for command in (add_node, replace_node, upgrade, rollback, reset):
        app.command(command.__name__.replace("_", "-"))(placed(command, RunOptions))


def add_node(hosts: Chosen, spec: Spec = "cluster.yaml", until: Until = "", reuse: Reuse = "none", *, place: RunOptions) -> int:
    """Bring hosts that were added to the spec into the running cluster. No other host is changed, but gates check all of them."""
    return _start(spec, place, Operation(kind=OperationKind.ADD_NODE, hosts=_hosts(hosts)), reuse, until)


def replace_node(hosts: Chosen, spec: Spec = "cluster.yaml", until: Until = "", reuse: Reuse = "none", *, place: RunOptions) -> int:
    """Bring in new machines under the names of old ones. The cluster first deletes the Node and etcd member of each old machine."""
    return _start(spec, place, Operation(kind=OperationKind.REPLACE_NODE, hosts=_hosts(hosts)), reuse, until)


def upgrade(spec: Spec = "cluster.yaml", *, place: RunOptions) -> int:
    """Upgrade RKE2 to the spec's version: snapshot of etcd, servers one at a time, agents drained in batches; nothing else."""
    return _start(spec, place, Operation(kind=OperationKind.UPGRADE))


def rollback(
    spec: Spec = "cluster.yaml", yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False, *, place: RunOptions
) -> int:
    """Take RKE2 back to the version before the last upgrade, as the spec names it: all servers at once, with etcd as it was then.

    Every server must still have that release, and one of them a snapshot from before the upgrade; otherwise nothing is stopped.
    """
    operation = Operation(kind=OperationKind.ROLLBACK)
    if not yes:
        consequence = "sets its etcd back to before the last upgrade: what was written since is lost"
        _ask(spec, operation, f"rollback stops all servers of cluster {{name}} and {consequence}")
    return _start(spec, place, operation)


def reset(
    spec: Spec = "cluster.yaml",
    hosts: Some = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    *,
    place: RunOptions,
) -> int:
    """Remove RKE2 from the machines, with everything that it and its pods left there. The cluster's data is lost."""
    operation = Operation(kind=OperationKind.RESET, hosts=_hosts(hosts or ()))
    if not yes:
        which = f"hosts {', '.join(hosts)}" if hosts else "all {hosts}"
        _ask(spec, operation, f"reset takes RKE2, its pods and their data off {which} of cluster {{name}}")
    return _start(spec, place, operation)


def _hosts(ranges: Sequence[str]) -> frozenset[str]:
    from workflows.app.specs import operations

    return operations.names(ranges)


def _start(spec: str, options: RunOptions, operation: Operation, reuse: str = "none", until: str = "") -> int:
    from workflows.app.runs import run_start
    from workflows.app.specs import operations

    wish = Wish(reuse=reuse, only=operations.only(operation), until=until, operation=operation)
    return run_start.start(output, spec, options, wish)


def _ask(spec: str, operation: Operation, what: str) -> None:
    """Ask for the cluster's name before a destructive operation. `what` describes it, with `{name}` and `{hosts}` to fill in.

    Raises typer.BadParameter without a terminal, or if another name is typed.
    """
    from workflows.app.specs import operations, sources

    pipeline_of(spec).plan_of(spec, operations.only(operation), "", operation)  # refuse before asking
    loaded = sources.read(spec)[1]
    question = what.format(name=loaded.name, hosts=count(len(loaded.machines), "host"))
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question}, and nobody is here to ask: add --yes")
    output.lines([question])
    if typer.prompt("type the name of the cluster to go on") != loaded.name:
        raise typer.BadParameter(f"that is not {loaded.name}, the name of the cluster: nothing was changed")
