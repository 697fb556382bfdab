#!/usr/bin/python
"""Ansible module that counts the processes, mounts, files and rules that RKE2 left on its host, and removes them."""

from __future__ import annotations

import os

from ansible.module_utils import host_lock, nvidia_driver
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import site_backups, site_paths, traces

DOCUMENTATION = r"""
module: rke2_traces
short_description: Counts and removes what RKE2 leaves behind on its host
description:
  - C(looked) only counts. C(begun) records that a reset has begun, unless there is nothing to reset or C(refused) is set. It also
    records the links and repository files that RKE2's uninstall script removes although bringup did not create them.
  - C(apart) ends RKE2's processes and unmounts the file systems below its folders, such as volumes of pods. It fails if one stays
    mounted, because removing the folders would delete its content.
  - C(gone) restores the recorded links and files, removes the traces and counts again; C(observation) has the remaining ones.
options:
  state: {description: 'Action to take.', type: str, choices: [looked, begun, apart, gone], required: true}
  force: {description: 'True to count shared Kubernetes paths even without other signs of RKE2.', type: bool}
  virtual_address: {description: 'Virtual IP address of the servers, which a killed kube-vip leaves on the interface.', type: str}
  pods: {description: 'Pod network (CIDR); blackhole routes to parts of it count as traces.', type: str}
author: [bringup]
"""

RETURN = r"""
observation: {description: 'traces: what is left, by kind of trace; looked: number of examined things by kind of trace; aside:
  backups of replaced files; foreign_driver: whether a container''s NVIDIA driver is in the kernel; cilium_programs: whether BPF
  programs of Cilium are.', type: dict}
refused: {description: 'Why nothing may be removed: a link leads to a folder with data that RKE2 did not make.', type: str}
any: {description: True if there were traces before., type: bool}
joins: {description: URL of the server that the configuration joins; empty if none., type: str}
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
