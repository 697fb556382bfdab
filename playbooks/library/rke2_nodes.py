#!/usr/bin/python
"""An Ansible module that reads, drains, frees or removes many Nodes in one go, with the kubectl of the server it runs on."""

from __future__ import annotations

from ansible.module_utils import waiting
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import elsewhere, kube, versions

DOCUMENTATION = r"""
module: rke2_nodes
short_description: Reads, drains, frees or removes Nodes on an RKE2 server
description:
  - C(drained) cordons each node with a mark of ours and moves its pods away within their own grace and budgets.
  - With C(returns) a node whose pods no other one takes is left alone, and named in C(lone).
  - C(free) uncordons the nodes that carry our mark, and no others.
  - C(removed) deletes the Nodes; RKE2 then removes etcd member and node password.
  - A node that refuses is named in C(refused); the others go on.
options:
  state: {description: 'What is to be done.', type: str, choices: [read, drained, free, removed], required: true}
  names: {description: Names of the nodes., type: list, elements: str}
  mark: {description: Why they are drained., type: str}
  seconds: {description: How long the drain of all of them may take., type: int}
  returns: {description: Whether the nodes come back after their drain., type: bool}
  leaving: {description: A server that is to stop; C(majority) then says whether etcd keeps its majority., type: str}
  patience: {description: 'How long, in seconds, the other servers may take until etcd can spare that one.', type: int}
  wanted: {description: 'A release for this server: C(refusal) then says which node would be too old for it.', type: str}
author: [bringup]
"""

RETURN = r"""
nodes: {description: Facts of the registered ones among the names., type: dict, returned: success}
servers: {description: Version of every server by name., type: dict, returned: state read}
refusal: {description: Why the server may not run the wanted release., type: str, returned: state read}
lone: {description: Nodes that were not drained for no other takes their pods., type: list, returned: state drained}
majority: {description: Why etcd would lose its majority., type: str, returned: state read}
refused: {description: A sentence for each node that refused., type: dict, returned: success}
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


def read(kubectl: kube.Kube, wanted: dict) -> dict:
    """Nodes, servers, and what was asked for beside them."""
    servers = kubectl.servers()
    return {
        "nodes": kubectl.nodes(wanted["names"]),
        "servers": {name: seen["version"] for name, seen in servers.items()},
        "refusal": versions.server_refusal(wanted["wanted"], kubectl.versions()) if wanted["wanted"] else "",
        "majority": kube.missing_voters(servers, wanted["leaving"]) if wanted["leaving"] else "",
    }


def read_when_spared(kubectl: kube.Kube, wanted: dict) -> dict:
    """What is read once etcd can spare the server that is to stop, or when patience ends: who has just restarted is soon Ready."""
    found: dict = {}
    for _ in waiting.rounds(wanted["patience"]):
        found = read(kubectl, wanted)
        if not found["majority"]:
            break
    return found


def change(kubectl: kube.Kube, wanted: dict, check_mode: bool) -> dict:
    """Drain, free or remove; what is so already is left alone."""
    nodes = kubectl.nodes(wanted["names"])
    lone = elsewhere.lone(nodes, kubectl.pages()) if wanted["state"] == "drained" and wanted["returns"] and nodes else []
    if wanted["state"] == "drained":
        todo = [name for name in nodes if name not in lone]
        ours = [name for name in todo if nodes[name]["marked"] or not nodes[name]["cordoned"]]
    elif wanted["state"] == "free":
        todo = ours = [name for name in nodes if nodes[name]["marked"]]
    else:
        todo = ours = list(nodes)

    def act(name: str) -> None:
        if wanted["state"] == "free":
            kubectl.free(name)
        else:
            kubectl.remove(name)

    if check_mode:
        refused = {}
    elif wanted["state"] == "drained":
        refused = kube.drain(kubectl, todo, wanted["mark"], ours, wanted["seconds"])
    else:
        refused = kube.each(todo, act)
    return {"nodes": nodes, "refused": refused, "lone": lone, "changed": bool(todo)}


def main() -> None:
    """Ask this server's API."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    if not kube.Kube.is_here():
        module.fail_json(msg="this host is no RKE2 server: %s or %s is not there" % (kube.KUBECTL, kube.KUBECONFIG))
    kubectl = kube.Kube()
    try:
        if module.params["state"] == "read":
            module.exit_json(changed=False, refused={}, **read_when_spared(kubectl, module.params))
        module.exit_json(**change(kubectl, module.params, module.check_mode))
    except kube.Refused as error:
        module.fail_json(msg="kubectl on this server: %s" % error)


if __name__ == "__main__":
    main()
