"""The state of the embedded engine as the `status` of a Workflow, in the form of a recorded 4.1.2 controller (argo_conformance)."""

from collections.abc import Callable
from typing import Any

from workflows.engines.argo.workflow_objects import stamp
from workflows.engines.local.model import WorkflowPlan
from workflows.engines.local.run_state import FAILED, RunNode, RunState
from workflows.render.grammar.gotext import fnv1a

Object = dict[str, Any]
POD_DELETED = "pod deleted"
"""Argo's message for a pod that was deleted while its node ran."""


def node_id(plan: WorkflowPlan, path: str) -> str:
    """Return the id of a node: the workflow's name, followed below the root by a hash of the full node name."""
    return plan.name if path == plan.name else f"{plan.name}-{fnv1a(path)}"


LastWord = Callable[[str], str]
"""A function that returns the termination message of a node's pod; empty if it left none."""


def _silent(_path: str) -> str:
    return ""


def workflow_status(plan: WorkflowPlan, state: RunState, began: float, last_word: LastWord = _silent) -> Object:
    """Return the status with phase, times and nodes; `began` is the wall time of the run's start."""
    shown: Object = {
        "phase": state.phase or "Running",
        "message": state.message or None,
        "startedAt": stamp(began),
        "finishedAt": stamp(began + state.at) if state.finished else None,
        "nodes": {node_id(plan, path): node_status(plan, state_node, began, last_word) for path, state_node in state.nodes.items()},
    }
    if state.outputs:
        shown["outputs"] = {"parameters": [{"name": name, "value": value} for name, value in state.outputs.items()]}
    return shown


def node_status(plan: WorkflowPlan, state_node: RunNode, began: float, last_word: LastWord = _silent) -> Object:
    """Return one entry of `status.nodes`. Empty fields are left out, as Argo does."""
    lost = state_node.message.endswith(f": {POD_DELETED}")
    shown: Object = {
        "id": node_id(plan, state_node.path),
        "name": state_node.path,
        "displayName": state_node.name,
        "type": state_node.type,
        "phase": state_node.phase,
        "message": POD_DELETED if lost else _message(state_node, last_word),
        "templateName": state_node.template_name,
        "templateScope": f"local/{plan.name}",
        "boundaryID": node_id(plan, state_node.boundary) if state_node.boundary else "",
        "startedAt": stamp(began + state_node.started),
        "finishedAt": stamp(began + state_node.finished) if state_node.finished is not None else None,
        "children": [node_id(plan, path) for path in state_node.children],
        "outboundNodes": [node_id(plan, path) for path in state_node.outbound],
        "inputs": {"parameters": [{"name": name, "value": value} for name, value in state_node.inputs]}
        if state_node.inputs
        else {},
        "outputs": {} if lost else _outputs(state_node),
        "nodeFlag": {key: True for key, held in (("hooked", state_node.hooked), ("retried", state_node.retried)) if held},
    }
    return {key: value for key, value in shown.items() if value or key == "finishedAt"}


def _message(state_node: RunNode, last_word: LastWord) -> str:
    """Return the message of a node; a failed pod's termination message follows the exit code (argo_conformance
    `command-not-found`).
    """
    last_line = (
        last_word(state_node.path)
        if state_node.type == "Pod" and state_node.phase == FAILED and state_node.message.endswith(")")
        else ""
    )
    return f"{state_node.message}: {last_line}" if last_line else state_node.message


def _outputs(state_node: RunNode) -> Object:
    sources = {item.name: item for item in (state_node.template.outputs if state_node.template else ())}
    rows = []
    for name, value in state_node.outputs.parameters.items():
        source = sources.get(name)
        source_field: Object = {} if source is None else {"supplied": {}} if source.supplied else {"path": source.path}
        source_field |= {"default": source.default} if source is not None and source.default is not None else {}
        rows.append(
            {"name": name, **({} if value is None else {"value": value}), **({"valueFrom": source_field} if source_field else {})}
        )
    outputs: Object = {"parameters": rows} if rows else {}
    outputs |= {"exitCode": str(state_node.outputs.exit_code)} if state_node.outputs.exit_code is not None else {}
    return outputs | ({"result": state_node.outputs.result} if state_node.outputs.result is not None else {})
