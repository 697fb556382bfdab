"""Tell failed builds that a retry may mend from those that it cannot: the exit code by which a CI server decides."""

from steps.clients.store import Store
from steps.contract.exit import ExitCode
from steps.contract.runs import evidence
from steps.contract.verdict import Status
from workflows.engines.folders import StateFolder


def ended(run: str, code: int) -> int:
    """Return exit code 75 for a failed build that a retry may mend, as a failed build leaves nothing half changed; else `code`."""
    return ExitCode.TEMPORARY if code == ExitCode.GATE_FAILED and may_pass(run) else code


def may_pass(run: str) -> bool:
    """Return True if a retry may mend a failed run: each task that failed last ended with a temporary error, not with a verdict."""
    store = Store(StateFolder.of_environment().store)
    latest = {key.rpartition("/")[0]: key for key in store.keys(f"runs/{run}/evidence")}
    records = [evidence.decode(data) for key in latest.values() if (data := store.read(key)) is not None]
    ends = [(record.error, record.verdict.status) for record in records if record.task != "judge" and record.verdict]
    failures = [(error, status) for error, status in ends if status not in (Status.PASS, Status.SKIPPED)]
    return bool(failures) and all(error and status is Status.INCONCLUSIVE for error, status in failures)
