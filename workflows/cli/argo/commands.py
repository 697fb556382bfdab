"""Commands about runs on Argo beside those that every run has: pull, sweep; and diff-runs, which compares any two."""

from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo.options import Place, placed
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
    from workflows.cli.argo import acting
    from workflows.cli.runs import reading

    away = acting.locate(run, place)
    if away is None:
        return _lies_here(run)
    count, found = reading.brought(away)
    output.lines([f"{output.count(count, 'file')} of {away.name} are in {found.folder.stored}"])
    found.say()
    return ExitCode.OK


def sweep(
    run: Run = "",
    plans: Annotated[bool, typer.Option("--plans", help="No run, but home: remove old plans that nothing refers to.")] = False,
    *,
    place: Place,
) -> int:
    """Do for a run that ended on Argo what its exit handler should have done: report, seal, give the target back."""
    if plans:
        return _sweep_plans(run, place)
    from workflows.cli.argo import acting, ending

    away = acting.find(run, place)
    return ending.sweep(away) if away else _lies_here(run)


def _sweep_plans(run: str, place: Place) -> int:
    """Each plan leaves a template, ConfigMaps and a Secret in home; whoever may delete those removes the old ones."""
    from datetime import UTC, datetime

    from workflows.cli import kubeconfigs
    from workflows.engines.argo import leftovers

    if run:
        raise typer.BadParameter(f"--plans is about all plans of the home cluster: leave out {run}")
    home = kubeconfigs.home(place.home_kubeconfig, place.home_context, place.namespace)
    removed = leftovers.remove(home, datetime.now(UTC))
    gone = [f"removed from namespace {home.namespace}: {name}, its ConfigMaps and its Secret" for name in removed]
    output.lines(gone or [f"namespace {home.namespace} of the home cluster has no old plan that nothing refers to"])
    return ExitCode.OK


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
