"""Patches of a Workflow for approvals: the answer to an open approval, and the claim of the one follower that announces it.

Each patch carries the Workflow's resource version, so that two machines cannot both succeed.
"""

import time
from typing import Any

import msgspec

from steps.clients.kube.api import ApiError
from steps.clients.store import Store
from steps.contract.runs import approval
from steps.errors import Temporary
from workflows.engines import open_approvals
from workflows.engines.approval_announcer import Claim
from workflows.engines.argo import helper_pods, pull
from workflows.engines.argo.home import Home, NoWorkflow, decode_workflow
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.argo.workflow_objects import Workflow, compress_nodes, decompress_nodes, node_status, stamp
from workflows.engines.folders import RunFolder
from workflows.engines.open_approvals import OpenApproval
from workflows.render.grammar.gotext import fnv1a

TRIES = 20
"""Number of tries to patch a Workflow. Argo's controller writes its status all the time, so conflicts are normal."""


class Overtaken(Temporary):
    """Exception: the Workflow changed during every one of several tries to patch it."""


def waiting_approvals(home: Home, workflow: Workflow, folder: RunFolder, nodes: list[str]) -> list[OpenApproval]:
    """Return the approvals that these suspend nodes wait for, with their evidence copied from the run store now.

    Raises HelperPodFailed if the store cannot be read, Damaged if its copy arrives incomplete.
    """
    pull.fetch_tasks(home, workflow, folder)
    if nodes:
        pull.pull(home, workflow, folder)
    return [open_approvals.read_approval(folder, node) for node in nodes]


def store_signature(home: Home, workflow: Workflow, folder: RunFolder, pending: OpenApproval, approver: str, key: str) -> None:
    """Sign the approval with a private key file of this machine; a pod writes the signature into the home cluster's run store."""
    open_approvals.sign(folder, pending, approver, key)
    key_in_store = approval.signature_key(pending.run, pending.approved, approver)
    content = Store(folder.home.store).read(key_in_store) or b""
    helper_pods.run(home, workflow, helper_pods.store_file("sign", key_in_store, content))


def answer(home: Home, run: str, node: str, values: dict[str, str], message: str) -> None:
    """Answer the open approval at the suspend node with this display name, so that the run continues.

    `values` are the node's output parameters. Raises NotWaiting if the node is not open, Overtaken if every try met a conflict.
    """
    for number in range(TRIES):
        data = home.raw_workflow(run)
        workflow = decode_workflow(data)
        if number and _is_answered(workflow, node, values, message):
            return  # an earlier try arrived, but its response was lost
        patch = answer_patch(workflow, msgspec.json.decode(data), node, values, message)
        try:
            home.ask(lambda kube: kube.merge(home.workflows(run), patch))  # noqa: B023  # called within the same turn
            return
        except ApiError as error:
            if error.status != 409:
                raise
    raise Overtaken(f"Workflow {run} changed {TRIES} times while it was to be answered", hint="try again")


def _is_answered(workflow: Workflow, node: str, values: dict[str, str], message: str) -> bool:
    nodes = workflow.nodes()
    gates = (gate for gate in nodes.values() if gate.type == "Suspend" and gate.display_name == node)
    statuses = (node_status(gate, nodes) for gate in gates)
    return any((gate.phase, gate.message, gate.outputs) == ("Succeeded", message, values) for gate in statuses)


def answer_patch(workflow: Workflow, raw: dict[str, Any], node: str, values: dict[str, str], message: str) -> dict[str, Any]:
    """Return the merge patch that answers one open suspend node and changes no other node. Raises NotWaiting if it is not open."""
    node_ids = [gate.id for gate in workflow.nodes().values() if gate.is_open_gate and gate.display_name == node]
    if len(node_ids) != 1:
        raise open_approvals.NotWaiting(f"run {workflow.metadata.name} does not wait at {node} (any more)")
    compressed = raw["status"].get("compressedNodes")
    all_nodes = msgspec.json.decode(decompress_nodes(compressed)) if compressed else raw["status"]["nodes"]
    node_data = all_nodes[node_ids[0]]
    rows = (node_data.get("outputs") or {}).get("parameters") or []
    names = {row["name"] for row in rows}
    if names != set(values):
        raise open_approvals.NotWaiting(
            f"{node} wants {', '.join(sorted(names)) or 'no parameter'}, not {', '.join(sorted(values))}"
        )
    # a merge patch replaces a list as a whole (RFC 7396), so each row is written in full
    answers = [{"name": row["name"], "value": values[row["name"]], "valueFrom": {"supplied": {}}} for row in rows]
    changes = {"phase": "Succeeded", "finishedAt": stamp(time.time()), "message": message, "outputs": {"parameters": answers}}
    meta = {"resourceVersion": workflow.metadata.resource_version}
    if not compressed:
        return {"metadata": meta, "status": {"nodes": {node_ids[0]: changes}}}
    # compressed nodes can only be replaced as a whole
    all_nodes[node_ids[0]] = {**node_data, **changes}
    return {"metadata": meta, "status": {"compressedNodes": compress_nodes(msgspec.json.encode(all_nodes))}}


CLAIM_PREFIX = "bringup/announced-"


def claim(where: HomeAddress, run: str) -> Claim:
    """Return a function that returns True to exactly one follower of the run for each suspend node, whatever machine it runs on.

    The winner's patch sets the annotation `bringup/announced-HASH` to the time of the claim. The function raises Temporary if the
    Workflow changes at each try: a missing announcement with a warning is better than two announcements.
    """

    def ours(node: str) -> bool:
        home, key = Home(where), f"{CLAIM_PREFIX}{fnv1a(node):08x}"
        for _ in range(TRIES):
            try:
                meta = home.workflow(run).metadata
            except NoWorkflow:  # deleted meanwhile, so nobody waits for an approval
                return False
            if key in meta.annotations:
                return False
            patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": {key: stamp(time.time())}}}
            try:
                home.ask(lambda kube: kube.merge(home.workflows(run), patch))  # noqa: B023  # called within the same turn
                return True
            except ApiError as error:
                if error.status != 409:
                    raise
        raise Temporary(
            f"Workflow {run} changed at each of {TRIES} tries to note that this follower announces it: tell the approvers yourself"
        )

    return ours
