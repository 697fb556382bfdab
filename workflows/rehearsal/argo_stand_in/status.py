"""A state of the embedded engine as the `status` of a Workflow, in the form that a 4.1.2 controller writes (argo_conformance)."""

from collections.abc import Callable
from typing import Any

from workflows.engines.argo.objects import stamp
from workflows.engines.local.model import Plan
from workflows.engines.local.state import FAILED, Node, State
from workflows.render.grammar.gotext import fnv1a

Object = dict[str, Any]
POD_DELETED = "pod deleted"
"""Argo's message for a pod that went away under it (hera_argo §5)."""


def node_id(plan: Plan, path: str) -> str:
    """Id of a node: the workflow's name, and a hash of the full node name below the root."""
    return plan.name if path == plan.name else f"{plan.name}-{fnv1a(path)}"


LastWord = Callable[[str], str]
"""The termination message of a node's pod, empty where it left none."""


def _silent(_path: str) -> str:
    return ""


def status(plan: Plan, state: State, began: float, last_word: LastWord = _silent) -> Object:
    """Phase, times and nodes; `began` is the wall time of the run's start."""
    shown: Object = {
        "phase": state.phase or "Running",
        "message": state.message or None,
        "startedAt": stamp(began),
        "finishedAt": stamp(began + state.at) if state.finished else None,
        "nodes": {node_id(plan, path): node(plan, one, began, last_word) for path, one in state.nodes.items()},
    }
    if state.outputs:
        shown["outputs"] = {"parameters": [{"name": name, "value": value} for name, value in state.outputs.items()]}
    return shown


def node(plan: Plan, one: Node, began: float, last_word: LastWord = _silent) -> Object:
    """One entry of `status.nodes`; empty fields are left out, as Argo does; a failed pod's last word is a part of its message."""
    lost = one.message.endswith(f": {POD_DELETED}")
    shown: Object = {
        "id": node_id(plan, one.path),
        "name": one.path,
        "displayName": one.name,
        "type": one.type,
        "phase": one.phase,
        "message": POD_DELETED if lost else _message(one, last_word),
        "templateName": one.template_name,
        "templateScope": f"local/{plan.name}",
        "boundaryID": node_id(plan, one.boundary) if one.boundary else "",
        "startedAt": stamp(began + one.started),
        "finishedAt": stamp(began + one.finished) if one.finished is not None else None,
        "children": [node_id(plan, path) for path in one.children],
        "outboundNodes": [node_id(plan, path) for path in one.outbound],
        "inputs": {"parameters": [{"name": name, "value": value} for name, value in one.inputs]} if one.inputs else {},
        "outputs": {} if lost else _outputs(one),
        "nodeFlag": {key: True for key, held in (("hooked", one.hooked), ("retried", one.retried)) if held},
    }
    return {key: value for key, value in shown.items() if value or key == "finishedAt"}


def _message(one: Node, last_word: LastWord) -> str:
    """A controller has a container's end from its pod's status: exit code, then the termination message (argo_conformance
    `command-not-found`)."""
    said = last_word(one.path) if one.type == "Pod" and one.phase == FAILED and one.message.endswith(")") else ""
    return f"{one.message}: {said}" if said else one.message


def _outputs(one: Node) -> Object:
    sources = {item.name: item for item in (one.template.outputs if one.template else ())}
    rows = []
    for name, value in one.outputs.parameters.items():
        source = sources.get(name)
        given: Object = {} if source is None else {"supplied": {}} if source.supplied else {"path": source.path}
        given |= {"default": source.default} if source is not None and source.default is not None else {}
        rows.append({"name": name, **({} if value is None else {"value": value}), **({"valueFrom": given} if given else {})})
    found: Object = {"parameters": rows} if rows else {}
    found |= {"exitCode": str(one.outputs.exit_code)} if one.outputs.exit_code is not None else {}
    return found | ({"result": one.outputs.result} if one.outputs.result is not None else {})
