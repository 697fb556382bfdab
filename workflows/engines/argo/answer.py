"""Answers an approval on Argo: all supplied outputs and the release of that one node, in one patch that checks the revision."""

import base64
import inspect
import time
from typing import Any

import msgspec

from steps.clients.kube.api import ApiError
from steps.clients.store import Store
from steps.contract import approval
from steps.errors import Temporary
from workflows.engines import approvals
from workflows.engines.approvals import Open
from workflows.engines.argo import pods, pull, remembered, write_store
from workflows.engines.argo.home import Home, decoded
from workflows.engines.argo.objects import Workflow, node_status, packed, stamp, unpacked
from workflows.engines.folders import RunFolder

TRIES = 20
"""The controller writes its status all the time: a revision that is outdated is nothing unusual, and is read again."""


class Overtaken(Temporary):
    """The Workflow changed again and again while it was to be patched."""


def waiting(home: Home, workflow: Workflow, folder: RunFolder, nodes: list[str]) -> list[Open]:
    """The approvals that wait, on evidence that was read from the store just now. Raises ErrandFailed, Damaged."""
    remembered.learn(home, workflow, folder)
    if nodes:
        pull.pull(home, workflow, folder)
    return [approvals.read(folder, node) for node in nodes]


def keep_signature(home: Home, workflow: Workflow, folder: RunFolder, one: Open, approver: str, key: str) -> None:
    """Sign a pass with a private key of this machine, and put the signature into the store of home."""
    approvals.sign(folder, one, approver, key)
    where = approval.signature_key(one.run, one.approved, approver)
    content = base64.b64encode(Store(folder.home.store).read(where) or b"").decode()
    environment = {"BRINGUP_STORE": "/bringup/store", "KEY": where, "CONTENT": content}
    command = ("python", "-c", inspect.getsource(write_store))
    pods.run(home, workflow, pods.Errand(purpose="sign", command=command, environment=environment, writes=True))


def answer(home: Home, run: str, node: str, given: dict[str, str], message: str) -> None:
    """Set the outputs of the open gate with this display name and let it go on. Raises NotWaiting when it is not open."""
    for number in range(TRIES):
        data = home.raw_workflow(run)
        workflow = decoded(data)
        if number and _is_answered(workflow, node, given, message):
            return  # an earlier try arrived, its answer did not
        patch = patched(workflow, msgspec.json.decode(data), node, given, message)
        try:
            home.ask(lambda kube: kube.merge(home.workflows(run), patch))  # noqa: B023  # called within the same turn
            return
        except ApiError as error:
            if error.status != 409:
                raise
    raise Overtaken(f"Workflow {run} changed {TRIES} times while it was to be answered", hint="try again")


def _is_answered(workflow: Workflow, node: str, given: dict[str, str], message: str) -> bool:
    nodes = workflow.nodes()
    shown = [node_status(one, nodes) for one in nodes.values() if one.type == "Suspend" and one.display_name == node]
    return any(one.phase == "Succeeded" and one.message == message and one.outputs == given for one in shown)


def patched(workflow: Workflow, raw: dict[str, Any], node: str, given: dict[str, str], message: str) -> dict[str, Any]:
    """The merge patch that answers one gate, and that alone. Raises NotWaiting."""
    found = [one.id for one in workflow.nodes().values() if one.is_open_gate and one.display_name == node]
    if len(found) != 1:
        raise approvals.NotWaiting(f"run {workflow.metadata.name} does not wait at {node} (any more)")
    shown = raw["status"].get("compressedNodes")
    before = (msgspec.json.decode(unpacked(shown)) if shown else raw["status"]["nodes"])[found[0]]
    rows = (before.get("outputs") or {}).get("parameters") or []
    names = {row["name"] for row in rows}
    if names != set(given):
        raise approvals.NotWaiting(f"{node} wants {', '.join(sorted(names)) or 'no parameter'}, not {', '.join(sorted(given))}")
    answers = [{"name": row["name"], "value": given[row["name"]], "valueFrom": {"supplied": {}}} for row in rows]
    now = {
        "phase": "Succeeded",
        "finishedAt": stamp(time.time()),
        "message": message,
        "outputs": {"parameters": answers},
    }
    meta = {"resourceVersion": workflow.metadata.resource_version}
    if not shown:
        return {"metadata": meta, "status": {"nodes": {found[0]: now}}}
    every = msgspec.json.decode(unpacked(shown))
    every[found[0]] = {**before, **now}
    return {"metadata": meta, "status": {"compressedNodes": packed(msgspec.json.encode(every))}}
