"""Status of each stage of a run on Argo, derived from the Workflow's nodes alone (pure; evidence from the store says more)."""

from collections.abc import Iterable, Mapping, Sequence

from steps.contract import last_word, shortcut
from steps.contract import run as contract
from steps.contract.shortcut import Shortcut
from workflows.engines.local.result import RunNodeStatus
from workflows.render import names

JUDGE, VERDICT = "judge", "verdict"
NOT_RUN, TO_COME, UNTOLD, SKIPPED = "not run", "to come", "inconclusive", "skipped"
_BAD = ("fail", UNTOLD)
_FAILED = ("Failed", "Error")


def stages(ids: Iterable[str], nodes: Iterable[RunNodeStatus], run: str) -> list[dict[str, str]]:
    """Return one row per stage in running order (stage, status, reason), as `bringup status` prints them.

    A row for the task `open` comes first if that task failed.
    """
    by_template: dict[str, list[RunNodeStatus]] = {}
    for node in nodes:
        by_template.setdefault(node.template, []).append(node)
    opening = _opening(by_template.get(names.template(contract.STAGE, contract.OPEN), ()), run)
    stage_ids = tuple(ids)
    rows = [_stage(stage, by_template, run, opened=not opening) for stage in stage_ids]
    for shortcut_taken in (candidate for candidate in shortcut.declared(stage_ids) if _is_taken(candidate, by_template)):
        rows = [_row(row["stage"], SKIPPED, shortcut_taken.reason) if row["status"] == NOT_RUN else row for row in rows]
    return [*opening, *rows]


def _is_taken(declared: Shortcut, nodes: Mapping[str, list[RunNodeStatus]]) -> bool:
    deciding = nodes.get(names.template(declared.stage, declared.task), ())
    return any(node.outputs.get(declared.output) == declared.done for node in deciding)


def _opening(nodes: Sequence[RunNodeStatus], run: str) -> list[dict[str, str]]:
    """Return a row for the task `open` if it failed for good: the Retry node above its attempts has ended."""
    pods = [node for node in nodes if node.type == "Pod"]
    whole = [node for node in nodes if node.type == "Retry"] or pods
    if not any(node.phase in _FAILED for node in whole):
        return []
    message = _last(pods or whole).message
    word = last_word.of_node(message)
    untold = f"{message}; why: bringup logs {contract.STAGE}.{contract.OPEN} --run {run}".removeprefix("; ")
    return [_row(contract.OPEN, *((word.status, word.reason) if word else (UNTOLD, untold)))]


def _last(nodes: Iterable[RunNodeStatus]) -> RunNodeStatus:
    return max(nodes, key=lambda node: (node.started, node.path))


def _stage(stage: str, nodes: Mapping[str, list[RunNodeStatus]], run: str, *, opened: bool) -> dict[str, str]:
    judged = [node for node in nodes.get(names.template(stage, JUDGE), ()) if node.type == "Pod" and node.finished]
    whole = nodes.get(names.dashed(stage), [])
    if judged:
        last = _last(judged)
        status = last.outputs.get(VERDICT) or UNTOLD
        return _row(stage, status, _reason(last.message, run) if status in _BAD else "")
    if any(node.phase == "Running" for node in whole):
        return _row(stage, "running", "")
    ended = [node for node in whole if node.finished is not None]
    if ended and not opened:
        return _row(stage, NOT_RUN, f"{contract.OPEN} did not pass")
    return _row(stage, NOT_RUN, ended[-1].message) if ended else _row(stage, TO_COME, "")


def _reason(message: str, run: str) -> str:
    """Return why a judge failed: its last word, or the command that shows the reason if its pod left none."""
    word = last_word.of_node(message)
    return word.reason if word else f"{message}; why: bringup report {run}".removeprefix("; ")


def ended_rows(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of a run that has ended: stages that were still to come are marked as not run."""
    return [_row(row["stage"], NOT_RUN, row["reason"]) if row["status"] == TO_COME else row for row in rows]


def with_reasons(rows: Iterable[dict[str, str]], stored: Mapping[str, tuple[str, str]]) -> list[dict[str, str]]:
    """Return the rows with the full reasons from the store (`stored` maps a stage to status and reason of its verdict).

    A stored verdict that contradicts the node's status belongs to an earlier attempt and is not used.
    """
    return [_explained(row, stored.get(row["stage"])) for row in rows]


def _explained(row: dict[str, str], stored: tuple[str, str] | None) -> dict[str, str]:
    if row["status"] in ("running", TO_COME):
        return row
    if stored is not None and (row["status"] == stored[0] or (row["status"] in (NOT_RUN, UNTOLD) and stored[0] in _BAD)):
        return _row(row["stage"], *stored)
    return row


def _row(stage: str, status: str, reason: str) -> dict[str, str]:
    return {"stage": stage, "status": status, "reason": reason}
