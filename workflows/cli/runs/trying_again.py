"""Whether a run that did not pass may pass when it is tried again: its records name nothing that would hinder it then."""

from steps.clients.store import Store
from steps.contract import evidence
from steps.contract.verdict import Status
from workflows.engines.folders import Home

_JUDGE = "judge"


def may_pass(run: str) -> bool:
    """Whether every task without a pass ended its last attempt with a temporary error, whose record is inconclusive."""
    store = Store(Home.of_environment().store)
    latest: dict[str, str] = {}
    for key in store.keys(f"runs/{run}/evidence"):
        latest[key.rpartition("/")[0]] = key
    found = [evidence.decode(data) for key in latest.values() if (data := store.read(key)) is not None]
    open_ends = [one for one in found if one.task != _JUDGE and not _is_done(one)]
    return bool(open_ends) and all(one.error and one.verdict and one.verdict.status is Status.INCONCLUSIVE for one in open_ends)


def _is_done(record: evidence.Evidence) -> bool:
    return record.verdict is None or record.verdict.status in (Status.PASS, Status.SKIPPED)
