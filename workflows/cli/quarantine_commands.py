"""Commands about nodes that a run set aside: quarantine list, quarantine release."""

from typing import Annotated

import msgspec
import typer

from steps.contract.exit import ExitCode
from workflows.cli import completion, output
from workflows.cli.command_sections import SectionedGroup
from workflows.cli.options import LocationOptions, Output, Run, RunOption, placed
from workflows.cli.output import Format
from workflows.engines.folders import StateFolder


def register(app: typer.Typer) -> None:
    """Add the group `quarantine` to the application."""
    group = typer.Typer(cls=SectionedGroup, no_args_is_help=True, help="Nodes that a run set aside: list them, release them.")
    group.command(name="list")(placed(show))
    group.command()(placed(release))
    app.add_typer(group, name="quarantine")


def show(run: Run = "", form: Output = Format.TABLE, *, place: LocationOptions) -> int:
    """List the nodes that a run set aside, with stage and reason, and those that were released since."""
    from workflows.app import quarantine_list
    from workflows.app.runs import run_evidence

    evidence = run_evidence.find(run, place, fresh=True)
    folder = evidence.folder
    rows = quarantine_list.listed(folder.home, folder.name)
    output.note(evidence.note)
    if form is not Format.TABLE:
        output.data([msgspec.structs.asdict(row) for row in rows], form)
    elif rows:
        cells = [(node.node, node.stage, node.reason, node.released) for node in rows]
        output.table(("node", "stage", "reason", "released"), cells)
    else:
        output.lines([f"run {folder.name} {'has set no node aside so far' if evidence.goes_on else 'set no node aside'}"])
    return ExitCode.OK


def release(
    nodes: Annotated[
        list[str],
        typer.Argument(
            help="Names of nodes, or ranges as gpu[017-018].", metavar="NODE…", autocompletion=completion.quarantined_nodes
        ),
    ],
    run: RunOption = "",
    who: Annotated[str, typer.Option("--as", metavar="NAME", help="Your name; it becomes evidence.")] = "",
    *,
    place: LocationOptions,
) -> int:
    """Release repaired nodes: remove the run's cordon, and record who released them and when."""
    from workflows.app import quarantine_list
    from workflows.app.runs import argo_runs, quarantine_release
    from workflows.app.specs import operations

    names = sorted(operations.names(nodes, "NODE"))
    if away := argo_runs.locate(run, place):
        lines = quarantine_release.release_on_argo(away, names, who)
    else:
        lines = quarantine_list.release(StateFolder.of_environment().find(run), names, who)
    output.lines(lines)
    return ExitCode.OK
