"""Ends a run on Argo, and does what its exit handler left undone."""

from steps.clients.store import Store
from steps.contract import seal
from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo.acting import NEVER_BEGUN, Away
from workflows.cli.runs import cancelling
from workflows.engines.argo import pull, stop


def cancel(away: Away, *, now: bool) -> int:
    """`bringup cancel`."""
    keep = stop.cancel(away.home, away.name, cancelling.by_me(), now=now)
    then = f"; if it ends without report and seal: bringup sweep {away.name}" if stop.has_begun(away.workflow()) else ""
    output.lines([f"{away.name} is being cancelled{then}"])
    cancelling.kept(keep)
    return ExitCode.OK


def sweep(away: Away) -> int:
    """`bringup sweep`: what the exit handler should have done; once sealed, only the evidence is brought here."""
    workflow = away.workflow()
    if stop.was_never_begun(workflow):
        output.lines([f"{away.name}: {NEVER_BEGUN}, nor holds a target"])
        return ExitCode.OK
    pull.pull(away.home, workflow, away.folder)
    if Store(away.folder.home.store).read(f"runs/{away.name}/{seal.FILE}") is None:
        stop.sweep(away.home, workflow)
        pull.pull(away.home, workflow, away.folder)
        output.lines([f"{away.name} was swept: reported, sealed, its target given back"])
    else:
        output.lines([f"{away.name} was reported and sealed already"])
    return ExitCode.OK
