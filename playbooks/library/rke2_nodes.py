#!/usr/bin/python
"""Ansible module that reads, drains, uncordons or removes many Nodes in one call, with the kubectl of the server it runs on."""

from __future__ import annotations

from ansible.module_utils import polling
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import kubectl as kube
from ansible.module_utils.rke2 import rke2_versions

DOCUMENTATION = r"""
module: rke2_nodes
short_description: Reads, drains, uncordons or removes Nodes on an RKE2 server
description:
  - C(drained) annotates and cordons each node, and evicts its pods within their grace periods and disruption budgets.
  - With C(returns), a node whose pods fit on no other node is not drained; C(lone) names it.
  - C(free) uncordons only the nodes with the annotation of C(drained), and removes it.
  - C(removed) deletes the Nodes; RKE2 then removes their etcd members and node passwords.
  - A node that cannot be changed does not stop the others; C(refused) names it with the reason.
options:
  state: {description: 'Action to take.', type: str, choices: [read, drained, free, removed], required: true}
  names: {description: Names of the nodes., type: list, elements: str}
  mark: {description: 'Reason for the drain, the value of the annotation.', type: str}
  seconds: {description: 'Longest time for the drain of all nodes, in seconds.', type: int}
  returns: {description: True if the nodes come back after the drain., type: bool}
  leaving: {description: A server that is about to stop; C(majority) then says why etcd would lose its majority., type: str}
  patience: {description: 'Longest wait, in seconds, until etcd keeps its majority without that server.', type: int}
  wanted: {description: 'Release to install on this server; C(refusal) then names a node too old for it.', type: str}
author: [bringup]
"""

RETURN = r"""
nodes: {description: Facts of the registered nodes among C(names)., type: dict, returned: success}
servers: {description: Version of every server by name., type: dict, returned: state read}
refusal: {description: 'Why this server may not run the wanted release; empty if it may.', type: str, returned: state read}
lone: {description: Nodes that were not drained because their pods fit on no other node., type: list, returned: state drained}
majority: {description: 'Why etcd would lose its majority; empty if not.', type: str, returned: state read}
refused: {description: 'Nodes that could not be changed, by name, each with the reason.', type: dict, returned: success}
"""

SPEC: dict = {
    "state": {"type": "str", "choices": ["read", "drained", "free", "removed"], "required": True},
    "names": {"type": "list", "elements": "str", "default": []},
    "mark": {"type": "str", "default": "upgrade"},
    "seconds": {"type": "int", "default": 600},
    "returns": {"type": "bool", "default": False},
    "leaving": {"type": "str", "default": ""},
    "patience": {"type": "int", "default": 0},
    "wanted": {"type": "str", "default": ""},
}


def read(kubectl: kube.Kubectl, wanted: dict) -> dict:
    """Return facts of the named Nodes, each server's version, and why the wanted release or a server's stop is refused."""
    servers = kubectl.servers()
    return {
        "nodes": kubectl.nodes(wanted["names"]),
        "servers": {name: seen["version"] for name, seen in servers.items()},
        "refusal": rke2_versions.server_refusal(wanted["wanted"], kubectl.versions()) if wanted["wanted"] else "",
        "majority": kube.majority_refusal(servers, wanted["leaving"]) if wanted["leaving"] else "",
    }


def read_when_spared(kubectl: kube.Kubectl, wanted: dict) -> dict:
    """Return `read`'s result once etcd can lose the leaving server without losing its majority, or after `patience` seconds."""
    cluster: dict = {}
    for _ in polling.attempts(wanted["patience"]):
        cluster = read(kubectl, wanted)
        if not cluster["majority"]:
            break
    return cluster


def change(kubectl: kube.Kubectl, wanted: dict, check_mode: bool) -> dict:
    """Drain, uncordon or remove Nodes; return their facts, refusals by name, Nodes left undrained (`lone`), and `changed`."""
    nodes = kubectl.nodes(wanted["names"])
    lone = kube.stranded_nodes(nodes, kubectl.pages()) if wanted["state"] == "drained" and wanted["returns"] and nodes else []
    if wanted["state"] == "drained":
        todo = [name for name in nodes if name not in lone]
        ours = [name for name in todo if nodes[name]["marked"] or not nodes[name]["cordoned"]]
    elif wanted["state"] == "free":
        todo = ours = [name for name in nodes if nodes[name]["marked"]]
    else:
        todo = ours = list(nodes)
    if check_mode:
        refused = {}
    elif wanted["state"] == "drained":
        refused = kube.drain(kubectl, todo, wanted["mark"], ours, wanted["seconds"])
    else:
        refused = kube.each(todo, kubectl.free if wanted["state"] == "free" else kubectl.remove)
    return {"nodes": nodes, "refused": refused, "lone": lone, "changed": bool(todo)}


def main() -> None:
    """Read or change Nodes with this server's kubectl, and fail the module if kubectl fails or is missing."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    if not kube.Kubectl.is_here():
        module.fail_json(msg="this host is no RKE2 server: %s or %s is not there" % (kube.KUBECTL, kube.KUBECONFIG))
    kubectl = kube.Kubectl()
    try:
        if module.params["state"] == "read":
            module.exit_json(changed=False, refused={}, **read_when_spared(kubectl, module.params))
        module.exit_json(**change(kubectl, module.params, module.check_mode))
    except kube.KubectlError as error:
        module.fail_json(msg="kubectl on this server: %s" % error)


if __name__ == "__main__":
    main()
