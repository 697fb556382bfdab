#!/usr/bin/python
"""An Ansible module that reads which cluster a server belongs to and who holds it, with its own kubectl; it changes nothing."""

from __future__ import annotations

import json
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import supervisor

DOCUMENTATION = r"""
module: cluster_identity
short_description: Reads which Kubernetes cluster a server belongs to
description:
  - Returns the UID of the namespace kube-system, through the admin kubeconfig that RKE2, K3s or kubeadm keep on a server.
  - A machine without such a file is bare. It changes nothing.
  - Beside it the Lease by which a run holds the cluster, and of RKE2 the kubeconfig itself, where an address for it is given.
options:
  address: {description: 'Address of the API for others, to put into a returned kubeconfig; empty: return none.', type: str}
author: [bringup]
"""

RETURN = r"""
observation: {description: The fields of ServerIdentity., type: dict, returned: always}
"""

PLACES = (
    ("rke2", "/etc/rancher/rke2/rke2.yaml", (["/var/lib/rancher/rke2/bin/kubectl"],)),
    ("k3s", "/etc/rancher/k3s/k3s.yaml", (["/usr/local/bin/k3s", "kubectl"], ["/usr/bin/k3s", "kubectl"])),
    ("kubeadm", "/etc/kubernetes/admin.conf", (["/usr/bin/kubectl"], ["/usr/local/bin/kubectl"])),
)
"""Kind, admin kubeconfig, and the commands that may read with it."""
QUESTION = ["--request-timeout=10s", "get", "namespace", "kube-system", "--output=jsonpath={.metadata.uid}"]
LEASE = ["--request-timeout=10s", "get", "lease", "bringup", "--namespace=kube-system", "--ignore-not-found", "--output=json"]
LOCAL = "https://127.0.0.1:6443"
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def identity(module: AnsibleModule) -> dict:
    """What the first kubeconfig found says."""
    for kind, kubeconfig, commands in PLACES:
        if os.path.exists(kubeconfig):
            return {"kind": kind, **answer(module, kubeconfig, commands)}
    return {"state": "bare"}


def answer(module: AnsibleModule, kubeconfig: str, commands: tuple) -> dict:
    """The cluster's UID, or why it cannot be read."""
    command = next((one for one in commands if os.path.exists(one[0])), None)
    if command is None:
        return {"state": "unreadable", "message": "%s is there, but no kubectl" % kubeconfig}
    _, output, error = module.run_command([*command, "--kubeconfig", kubeconfig, *QUESTION])
    if not UID.fullmatch(output.strip()):
        return {"state": "unreadable", "message": (error.strip() or output.strip())[-300:]}
    asked = module.run_command([*command, "--kubeconfig", kubeconfig, *LEASE])
    return {"state": "running", "uid": output.strip(), **held(asked[1]), **secret(kubeconfig, module.params["address"])}


def held(answer: str) -> dict:
    """What the Lease says, where there is one that can be read."""
    try:
        spec = json.loads(answer)["spec"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {"lease": spec} if isinstance(spec, dict) else {}


def secret(kubeconfig: str, address: str) -> dict:
    """The kubeconfig with an address that others can reach; none where it names another than RKE2's own, or none is wanted."""
    with open(kubeconfig) as source:
        text = source.read()
    if not address or LOCAL not in text:
        return {}
    return {"kubeconfig": text.replace(LOCAL, "https://%s:6443" % supervisor.host(address))}


def main() -> None:
    """Read."""
    module = AnsibleModule(argument_spec={"address": {"type": "str", "default": ""}}, supports_check_mode=True)
    module.exit_json(changed=False, observation=identity(module))


if __name__ == "__main__":
    main()
