"""The check if a failed run may pass when it is started again: no record names a lasting cause."""

from steps.clients.store import Store
from steps.contract import evidence
from steps.contract.verdict import Status
from workflows.engines.folders import StateFolder

_JUDGE = "judge"


def may_pass(run: str) -> bool:
    """Return True if every task without a pass ended its last attempt with a temporary error, whose record is inconclusive."""
    store = Store(StateFolder.of_environment().store)
    latest: dict[str, str] = {}
    for key in store.keys(f"runs/{run}/evidence"):
        latest[key.rpartition("/")[0]] = key
    records = [evidence.decode(data) for key in latest.values() if (data := store.read(key)) is not None]
    open_records = [record for record in records if record.task != _JUDGE and not _is_done(record)]
    return bool(open_records) and all(
        record.error and record.verdict and record.verdict.status is Status.INCONCLUSIVE for record in open_records
    )


def _is_done(record: evidence.Evidence) -> bool:
    return record.verdict is None or record.verdict.status in (Status.PASS, Status.SKIPPED)
