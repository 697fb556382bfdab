"""Commands about runs on Argo beside those that every run has: pull, sweep; and diff-runs, which compares any two."""

from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo_options import Place, placed
from workflows.cli.output import Format
from workflows.engines.folders import Home

Run = Annotated[str, typer.Argument(help="Name of a run; the newest where none is given.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(placed(pull))
    app.command()(placed(sweep))
    app.command(name="diff-runs")(diff_runs)


def pull(run: Run = "", *, place: Place) -> int:
    """Bring evidence, report and logs of a run on Argo to this machine; its store is read by a short pod."""
    from workflows.cli import argo

    away = argo.find(run, place)
    return argo.bring(away) if away else _lies_here(run)


def sweep(run: Run = "", *, place: Place) -> int:
    """Do for a run that ended on Argo what its exit handler should have done: report, seal, give the target back."""
    from workflows.cli import argo

    away = argo.find(run, place)
    return argo.sweep(away) if away else _lies_here(run)


def diff_runs(
    one: Annotated[str, typer.Argument(help="Name of a run whose evidence is here.")],
    other: Annotated[str, typer.Argument(help="Name of another.")],
    form: Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")] = Format.TABLE,
) -> int:
    """Compare the evidence of two runs: equal but for times and ids, or what differs."""
    from steps.clients.store import Store
    from workflows.engines.differences import differences

    found = differences(Store(Home.of_environment().store), one, other)
    if form is not Format.TABLE:
        output.data({"runs": [one, other], "equal": not found, "differences": list(found)}, form)
    else:
        output.lines(found or [f"the evidence of {one} and {other} is equal but for times and ids"])
    return ExitCode.GATE_FAILED if found else ExitCode.OK


def _lies_here(run: str) -> int:
    folder = Home.of_environment().find(run)
    raise typer.BadParameter(f"run {folder.name} was not on Argo: its evidence lies in {folder.stored}")
