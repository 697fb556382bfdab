"""Cancelling of a run on Argo, and the clean-up after an exit handler that did not finish."""

from steps.clients.store import Store
from steps.contract import seal
from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo.acting import NEVER_BEGUN, Away
from workflows.cli.runs import cancelling
from workflows.engines.argo import cancellation, pull


def cancel(away: Away, *, now: bool) -> int:
    """Cancel the run, for `bringup cancel`."""
    keep = cancellation.cancel(away.home, away.name, cancelling.by_me(), now=now)
    then = f"; if it ends without report and seal: bringup sweep {away.name}" if cancellation.has_begun(away.workflow()) else ""
    output.lines([f"{away.name} is being cancelled{then}"])
    cancelling.kept(keep)
    return ExitCode.OK


def sweep(away: Away) -> int:
    """Do the exit handler's work, for `bringup sweep`; for a sealed run, only fetch its evidence."""
    workflow = away.workflow()
    if cancellation.was_never_begun(workflow):
        output.lines([f"{away.name}: {NEVER_BEGUN}, nor holds a target"])
        return ExitCode.OK
    pull.pull(away.home, workflow, away.folder)
    if Store(away.folder.home.store).read(f"runs/{away.name}/{seal.FILE}") is None:
        cancellation.sweep(away.home, workflow)
        pull.pull(away.home, workflow, away.folder)
        output.lines([f"{away.name} was swept: reported, sealed, its target given back"])
    else:
        output.lines([f"{away.name} was reported and sealed already"])
    return ExitCode.OK
