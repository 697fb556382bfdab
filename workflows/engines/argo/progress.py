"""Where the stages of a run stand, as its nodes tell: pure; evidence says more once it has been read."""

from collections.abc import Iterable, Mapping, Sequence

from steps.contract import last_word
from steps.contract import run as contract
from steps.contract.stages import image_standing
from workflows.engines.local.result import NodeStatus
from workflows.render import names

JUDGE, VERDICT = "judge", "verdict"
NOT_RUN, TO_COME, UNTOLD, SPARED = "not run", "to come", "inconclusive", "skipped"
_BAD = ("fail", UNTOLD)
_FAILED = ("Failed", "Error")


def stages(ids: Iterable[str], nodes: Iterable[NodeStatus], run: str) -> list[dict[str, str]]:
    """One row a stage, in running order: stage, status and reason, as `bringup status` prints them, or who tells the reason.

    Where the task before all stages failed it has a row before theirs.
    """
    by_template: dict[str, list[NodeStatus]] = {}
    for node in nodes:
        by_template.setdefault(node.template, []).append(node)
    opening = _opening(by_template.get(names.template(contract.STAGE, contract.OPEN), ()), run)
    rows = [_stage(one, by_template, run, opened=not opening) for one in ids]
    return [*opening, *(_spared(rows) if _is_unchanged(by_template) else rows)]


def _is_unchanged(nodes: Mapping[str, list[NodeStatus]]) -> bool:
    """Whether an image build found its image published already, and left out all that comes after."""
    asked = nodes.get(names.template(image_standing.ID, image_standing.TASK), ())
    return any(node.outputs.get(image_standing.OUTPUT) == image_standing.CURRENT for node in asked)


def _spared(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    told = "nothing changed: this image is published already"
    return [_row(row["stage"], SPARED, told) if row["status"] == NOT_RUN else row for row in rows]


def _opening(nodes: Sequence[NodeStatus], run: str) -> list[dict[str, str]]:
    """A row where it failed for good: of attempts that are repeated the node above them tells the end."""
    pods = [node for node in nodes if node.type == "Pod"]
    whole = [node for node in nodes if node.type == "Retry"] or pods
    if not any(node.phase in _FAILED for node in whole):
        return []
    message = _last(pods or whole).message
    said = last_word.of_node(message)
    untold = f"{message}; why: bringup logs {contract.STAGE}.{contract.OPEN} --run {run}".removeprefix("; ")
    return [_row(contract.OPEN, *((said.status, said.reason) if said else (UNTOLD, untold)))]


def _last(nodes: Iterable[NodeStatus]) -> NodeStatus:
    return max(nodes, key=lambda node: (node.started, node.path))


def _stage(stage: str, nodes: Mapping[str, list[NodeStatus]], run: str, *, opened: bool) -> dict[str, str]:
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
    """Why a judge ended with 65: its last word, where its pod could leave one."""
    said = last_word.of_node(message)
    return said.reason if said else f"{message}; why: bringup report {run}".removeprefix("; ")


def over(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """The same rows of a run that has ended: what was to come does not run any more."""
    return [_row(row["stage"], NOT_RUN, row["reason"]) if row["status"] == TO_COME else row for row in rows]


def explained(rows: Iterable[dict[str, str]], stored: Mapping[str, tuple[str, str]]) -> list[dict[str, str]]:
    """The same rows, with the whole reason where `stored` has it (stage → status and reason of its verdict).

    What the store says of a stage that goes on, or ended otherwise by now, is of an earlier attempt.
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
