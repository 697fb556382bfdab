"""Commands about nodes that a run set aside: quarantine list, quarantine release."""

from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo.options import Place, placed
from workflows.cli.output import Format
from workflows.cli.runs import operations
from workflows.engines.folders import StateFolder


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Nodes that a run set aside: list them, release them.")
    group.command(name="list")(placed(show))
    group.command()(placed(release))
    app.add_typer(group, name="quarantine")


def show(
    run: Annotated[str, typer.Argument(help="Name of a run; the newest where none is given.")] = "",
    form: Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")] = Format.TABLE,
    *,
    place: Place,
) -> int:
    """List the nodes that a run set aside, with stage and reason, and those that were released since."""
    from workflows.cli.hosts import quarantining
    from workflows.cli.runs import reading

    evidence = reading.find(run, place, fresh=True)
    folder = evidence.folder
    rows = quarantining.listed(folder.home, folder.name)
    evidence.say()
    if form is not Format.TABLE:
        output.data(quarantining.plain(rows), form)
    elif rows:
        output.table(
            ("node", "stage", "reason", "released"), [(node.node, node.stage, node.reason, node.released) for node in rows]
        )
    else:
        output.lines([f"run {folder.name} {'has set no node aside so far' if evidence.goes_on else 'set no node aside'}"])
    return ExitCode.OK


def release(
    nodes: Annotated[list[str], typer.Argument(help="Names of nodes, or ranges as gpu[017-018].", metavar="NODE…")],
    run: Annotated[str, typer.Option("--run", help="Name of a run; the newest where none is given.")] = "",
    who: Annotated[str, typer.Option("--as", metavar="NAME", help="Your name; it becomes evidence.")] = "",
    *,
    place: Place,
) -> int:
    """Release repaired nodes: remove the run's cordon, and record who released them and when."""
    from workflows.cli.argo import acting as argo
    from workflows.cli.argo import quarantine as argo_quarantine
    from workflows.cli.hosts import quarantining

    names = sorted(operations.names(nodes, "NODE"))
    if away := argo.locate(run, place):
        lines = argo_quarantine.released(away, names, who)
    else:
        lines = quarantining.release(StateFolder.of_environment().find(run), names, who)
    for line in lines:
        output.lines([line])
    return ExitCode.OK
