"""Where the stages of a run stand, as its nodes tell: pure; evidence says more once it has been read."""

from collections.abc import Iterable, Mapping

from workflows.engines.local.result import NodeStatus
from workflows.render import names

JUDGE, VERDICT = "judge", "verdict"


def stages(ids: Iterable[str], nodes: Iterable[NodeStatus]) -> list[dict[str, str]]:
    """One row a stage, in running order: stage, status and reason, as `bringup status` prints them."""
    by_template: dict[str, list[NodeStatus]] = {}
    for node in nodes:
        by_template.setdefault(node.template, []).append(node)
    return [_stage(one, by_template) for one in ids]


def _stage(stage: str, nodes: Mapping[str, list[NodeStatus]]) -> dict[str, str]:
    judged = [node for node in nodes.get(names.template(stage, JUDGE), ()) if node.type == "Pod" and node.finished]
    whole = nodes.get(names.dashed(stage), [])
    if judged:
        last = max(judged, key=lambda node: (node.started, node.path))
        return _row(stage, last.outputs.get(VERDICT) or "inconclusive", last.message)
    if any(node.phase == "Running" for node in whole):
        return _row(stage, "running", "")
    ended = [node for node in whole if node.finished is not None]
    return _row(stage, "not run", ended[-1].message) if ended else _row(stage, "to come", "")


def _row(stage: str, status: str, reason: str) -> dict[str, str]:
    return {"stage": stage, "status": status, "reason": reason}
