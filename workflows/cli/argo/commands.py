"""Commands for runs on Argo alone: pull and sweep; and diff-runs, which compares any two runs."""

from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo.options import Place, placed
from workflows.cli.output import Format
from workflows.engines.folders import StateFolder

Run = Annotated[str, typer.Argument(help="Name of a run; the newest where none is given.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(placed(pull))
    app.command()(placed(sweep))
    app.command(name="diff-runs")(diff_runs)


def pull(run: Run = "", *, place: Place) -> int:
    """Copy evidence, report and logs of a run on Argo to this machine. A short-lived pod reads them from the run's store."""
    from workflows.cli.argo import acting
    from workflows.cli.runs import reading

    away = acting.locate(run, place)
    if away is None:
        return _lies_here(run)
    count, evidence = reading.brought(away)
    output.lines([f"{output.count(count, 'file')} of {away.name} are in {evidence.folder.stored}"])
    evidence.say()
    return ExitCode.OK


def sweep(
    run: Run = "",
    plans: Annotated[bool, typer.Option("--plans", help="No run, but home: remove old plans that nothing refers to.")] = False,
    *,
    place: Place,
) -> int:
    """Finish a run on Argo whose exit handler did not: write report and seal, and release the target's lease."""
    if plans:
        return _sweep_plans(run, place)
    from workflows.cli.argo import acting, ending

    away = acting.find(run, place)
    return ending.sweep(away) if away else _lies_here(run)


def _sweep_plans(run: str, place: Place) -> int:
    """Remove old plans from home, each a template, ConfigMaps and a Secret; only a user who may delete those can do this."""
    from datetime import UTC, datetime

    from workflows.cli import kubeconfigs
    from workflows.engines.argo import leftovers

    if run:
        raise typer.BadParameter(f"--plans is about all plans of the home cluster: leave out {run}")
    home = kubeconfigs.home(place.home_kubeconfig, place.home_context, place.namespace)
    removed = leftovers.remove(home, datetime.now(UTC))
    lines = [f"removed from namespace {home.namespace}: {name}, its ConfigMaps and its Secret" for name in removed]
    output.lines(lines or [f"namespace {home.namespace} of the home cluster has no old plan that nothing refers to"])
    return ExitCode.OK


def diff_runs(
    one: Annotated[str, typer.Argument(help="Name of a run whose evidence is here.")],
    other: Annotated[str, typer.Argument(help="Name of another.")],
    form: Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")] = Format.TABLE,
) -> int:
    """Compare the evidence of two runs and print the differences, leaving out times and ids."""
    from steps.clients.store import Store
    from workflows.engines.run_comparison import differences

    differing = differences(Store(StateFolder.of_environment().store), one, other)
    if form is not Format.TABLE:
        output.data({"runs": [one, other], "equal": not differing, "differences": list(differing)}, form)
    else:
        output.lines(differing or [f"the evidence of {one} and {other} is equal but for times and ids"])
    return ExitCode.GATE_FAILED if differing else ExitCode.OK


def _lies_here(run: str) -> int:
    folder = StateFolder.of_environment().find(run)
    raise typer.BadParameter(f"run {folder.name} was not on Argo: its evidence lies in {folder.stored}")
