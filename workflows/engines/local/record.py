"""A state as the conformance format has it: every node, sorted by display name, with phases, inputs, outputs and children."""

from __future__ import annotations

import math
from typing import Any

from workflows.engines.local.model import Plan
from workflows.engines.local.state import RUNNING, Node, State


def _ranks(state: State) -> dict[str, int]:
    starts = sorted({math.floor(node.started) for node in state.nodes.values()})
    rank = {second: index for index, second in enumerate(starts)}
    return {path: rank[math.floor(node.started)] for path, node in state.nodes.items()}


def _outputs(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"parameters": dict(node.outputs.parameters)}
    if node.outputs.exit_code is not None:
        found["exitCode"] = str(node.outputs.exit_code)
    if node.outputs.result is not None:
        found["result"] = node.outputs.result
    return found


def _node(state: State, node: Node, rank: int) -> dict[str, Any]:
    children = [state.nodes[path] for path in node.children]
    found: dict[str, Any] = {
        "name": node.name,
        "path": node.path,
        "type": node.type,
        "phase": node.phase,
        "message": node.message,
        "templateName": node.template_name,
        "inputs": {"parameters": dict(node.inputs)},
        "outputs": _outputs(node),
        "rank": rank,
        "boundary": state.nodes[node.boundary].name if node.boundary else "",
        "children": sorted(child.name for child in children),
        "childPaths": sorted(child.path for child in children),
    }
    flags = {key: True for key, held in (("hooked", node.hooked), ("retried", node.retried)) if held}
    return {**found, "nodeFlag": flags} if flags else found


def record(plan: Plan, state: State, most_pods: int, span: float) -> dict[str, Any]:
    """The record of a run: `most_pods` ran at one time, `span` seconds lie between its first start and its last end."""
    ranks = _ranks(state)
    return {
        "case": plan.name,
        "phase": state.phase or RUNNING,
        "message": state.message,
        "outputs": {"parameters": dict(state.outputs)},
        "nodes": [
            _node(state, node, ranks[node.path]) for node in sorted(state.nodes.values(), key=lambda node: (node.name, node.path))
        ],
        "maxRunningPods": most_pods,
        "spanSeconds": round(span, 3),
    }
