#!/usr/bin/python
"""Ansible module that counts the processes, mounts, files and rules that RKE2 left on its host, and removes them."""

from __future__ import annotations

import os

from ansible.module_utils import host_lock, nvidia_driver
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import site_backups, site_paths, traces

DOCUMENTATION = r"""
module: rke2_traces
short_description: Counts and removes what an RKE2 left on its host
description:
  - C(looked) only counts. C(begun) records that a reset has begun, if there is something to reset and nothing is C(refused),
    together with the site's links and repository files that RKE2's script removes.
  - C(apart) ends RKE2's processes and unmounts volumes of pods and shares of the site below its folders. It fails if one stays
    mounted, because removing the folders would empty it.
  - C(gone) restores these, removes the traces and counts again; remaining traces are in the observation.
options:
  state: {description: 'Action to take.', type: str, choices: [looked, begun, apart, gone], required: true}
  force: {description: 'True to count paths that another Kubernetes may have made, even if no RKE2 is recognised.', type: bool}
  virtual_address: {description: 'Address that servers hold themselves; a killed kube-vip leaves it on the interface.', type: str}
  pods: {description: 'The pod network; blackhole routes to parts of it count too.', type: str}
author: [bringup]
"""

RETURN = r"""
observation: {description: 'traces: what is left by kind, looked: how many things of each kind were examined, aside: backups of the
  site''s files that ours replaced, foreign_driver: whether a container''s NVIDIA driver is in the kernel, cilium_programs: whether
  BPF programs of Cilium are.', type: dict}
refused: {description: 'Why nothing may be removed: a link leads to a folder with other people''s data.', type: str}
any: {description: True if there were traces before., type: bool}
joins: {description: The server that the configuration joins; empty where it joins none., type: str}
"""


def main() -> None:
    """Count RKE2's traces, do the requested part of the reset, and count again."""
    spec: dict = {
        "state": {"type": "str", "choices": ["looked", "begun", "apart", "gone"], "required": True},
        "force": {"type": "bool", "default": False},
        "virtual_address": {"type": "str", "default": ""},
        "pods": {"type": "str", "default": ""},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    state, arguments = module.params["state"], [module.params[name] for name in ("force", "virtual_address", "pods")]
    if state != "looked":
        host_lock.hold_or_fail(module, "rke2_traces")
    acts = not module.check_mode
    if state in ("begun", "gone") and acts:
        site_paths.restore()
    left, looked = traces.find(*arguments)
    there = any(left.values())
    refused = site_paths.refusal() if there and state in ("looked", "begun") else ""
    if state == "begun" and refused:
        module.fail_json(msg=refused)
    if state == "begun" and there and acts:
        site_paths.begin_reset()
    if state == "apart" and there and acts:
        traces.stop_and_unmount(left)
        left, looked = traces.find(*arguments)
        if left["mounts"]:
            first = left["mounts"][0]
            module.fail_json(msg="%s cannot be unmounted, and what is in it would be removed: unmount it by hand" % first)
    if state == "gone" and there and acts:
        traces.remove(left)
        left, looked = traces.find(*arguments)
    if state == "gone" and not any(left.values()) and os.path.exists(site_paths.MARK) and acts:
        os.unlink(site_paths.MARK)
    kernel = {"foreign_driver": nvidia_driver.is_of_container(), "cilium_programs": traces.has_cilium_programs()}
    observation = {"traces": dict(left, looked=looked), "aside": site_backups.backups(), **kernel}
    shown = {"any": there, "joins": traces.joined_server(), "refused": refused, "observation": observation}
    module.exit_json(changed=there and state in ("apart", "gone"), **shown)


if __name__ == "__main__":
    main()
