#!/usr/bin/python
"""Ansible module that reports which Kubernetes cluster a server belongs to and which bringup run holds that cluster; read-only."""

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
  - Without such a file, the returned state is C(bare). The module changes nothing.
  - Also returns the Lease by which a bringup run locks the cluster and, for RKE2 with C(address), the kubeconfig itself.
options:
  address: {description: 'Address of the API to write into the returned kubeconfig; empty: return no kubeconfig.', type: str}
author: [bringup]
"""

RETURN = r"""
observation: {description: 'Keys: kind (rke2, k3s, kubeadm), state, uid, lease, kubeconfig, message.', type: dict, returned: always}
"""

PLACES = (
    ("rke2", "/etc/rancher/rke2/rke2.yaml", (["/var/lib/rancher/rke2/bin/kubectl"],)),
    ("k3s", "/etc/rancher/k3s/k3s.yaml", (["/usr/local/bin/k3s", "kubectl"], ["/usr/bin/k3s", "kubectl"])),
    ("kubeadm", "/etc/kubernetes/admin.conf", (["/usr/bin/kubectl"], ["/usr/local/bin/kubectl"])),
)
"""Kind of cluster, path of its admin kubeconfig, and the kubectl commands to try with it (the first that exists is run)."""
QUESTION = ["--request-timeout=10s", "get", "namespace", "kube-system", "--output=jsonpath={.metadata.uid}"]
LEASE = ["--request-timeout=10s", "get", "lease", "bringup", "--namespace=kube-system", "--ignore-not-found", "--output=json"]
LOCAL = "https://127.0.0.1:6443"
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def identity(module: AnsibleModule) -> dict:
    """Return the fields of `ServerIdentity` through the first admin kubeconfig on this host; `state` is `bare` without one."""
    for kind, kubeconfig, commands in PLACES:
        if os.path.exists(kubeconfig):
            return {"kind": kind, **answer(module, kubeconfig, commands)}
    return {"state": "bare"}


def answer(module: AnsibleModule, kubeconfig: str, commands: tuple) -> dict:
    """Return `state` (running or unreadable) with the cluster's UID, Lease and kubeconfig, or with a message on what failed."""
    command = next((words for words in commands if os.path.exists(words[0])), None)
    if command is None:
        return {"state": "unreadable", "message": "%s is there, but no kubectl" % kubeconfig}
    _, output, error = module.run_command([*command, "--kubeconfig", kubeconfig, *QUESTION])
    if not UID.fullmatch(output.strip()):
        return {"state": "unreadable", "message": (error.strip() or output.strip())[-300:]}
    _, lease, _ = module.run_command([*command, "--kubeconfig", kubeconfig, *LEASE])
    return {"state": "running", "uid": output.strip(), **lease_spec(lease), **secret(kubeconfig, module.params["address"])}


def lease_spec(answer: str) -> dict:
    """Return `{"lease": SPEC}` from kubectl's JSON for a Lease; an empty dict if there is no Lease or its JSON cannot be parsed."""
    try:
        spec = json.loads(answer)["spec"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {"lease": spec} if isinstance(spec, dict) else {}


def secret(kubeconfig: str, address: str) -> dict:
    """Return `{"kubeconfig": TEXT}` with `address` in place of 127.0.0.1; an empty dict without `address` or such a server URL."""
    with open(kubeconfig) as source:
        text = source.read()
    if not address or LOCAL not in text:
        return {}
    return {"kubeconfig": text.replace(LOCAL, "https://%s:6443" % supervisor.host(address))}


def main() -> None:
    """Exit the Ansible module with this server's cluster identity."""
    module = AnsibleModule(argument_spec={"address": {"type": "str", "default": ""}}, supports_check_mode=True)
    module.exit_json(changed=False, observation=identity(module))


if __name__ == "__main__":
    main()
