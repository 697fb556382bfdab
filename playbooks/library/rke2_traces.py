#!/usr/bin/python
"""An Ansible module that counts what an RKE2 left on its host, and takes it away."""

from __future__ import annotations

import os

from ansible.module_utils import alone, nvidia
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import aside, cilium, places, traces

DOCUMENTATION = r"""
module: rke2_traces
short_description: Counts and removes what an RKE2 left on its host
description:
  - C(looked) only counts. C(begun) remembers that a reset has begun, where there is something to reset and nothing is C(refused),
    and what of the site's RKE2's own script removes.
  - C(apart) ends RKE2's processes and unmounts volumes of pods and shares of the site below its folders; it fails where one stays
    mounted, for whoever removes the folders then would empty it.
  - C(gone) puts that back, removes what is left and counts again; what does not go is in the observation.
options:
  state: {description: 'What is to be done.', type: str, choices: [looked, begun, apart, gone], required: true}
  force: {description: 'Whether paths that another Kubernetes may have made count too, where no RKE2 is recognised.', type: bool}
  virtual_address: {description: 'The address that servers hold themselves, which a kube-vip that is killed leaves.', type: str}
  pods: {description: 'The network of pods: routes that drop what goes to a part of it count too.', type: str}
author: [bringup]
"""

RETURN = r"""
observation: {description: 'traces: what is left by kind, looked: how many things of each kind were looked at, aside: files of the
  site that ours took the places of, foreign_driver: whether an NVIDIA driver of a container is in the kernel, cilium_programs:
  whether BPF programs of Cilium are.', type: dict}
refused: {description: 'Why nothing may be removed: a link leads to where others keep things too.', type: str}
any: {description: Whether anything was there before., type: bool}
joins: {description: The server that the configuration joins; empty where it joins none., type: str}
"""


def main() -> None:
    """Count, remove, count again."""
    spec: dict = {
        "state": {"type": "str", "choices": ["looked", "begun", "apart", "gone"], "required": True},
        "force": {"type": "bool", "default": False},
        "virtual_address": {"type": "str", "default": ""},
        "pods": {"type": "str", "default": ""},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    state, asked = module.params["state"], [module.params[name] for name in ("force", "virtual_address", "pods")]
    if state != "looked":
        alone.or_fail(module, "rke2_traces")
    acts = not module.check_mode
    if state in ("begun", "gone") and acts:
        places.restore()
    left, looked = traces.find(*asked)
    there = any(left.values())
    refused = places.refusal() if there and state in ("looked", "begun") else ""
    if state == "begun" and refused:
        module.fail_json(msg=refused)
    if state == "begun" and there and acts:
        places.remember()
    if state == "apart" and there and acts:
        traces.part(left)
        left, looked = traces.find(*asked)
        if left["mounts"]:
            first = left["mounts"][0]
            module.fail_json(msg="%s cannot be unmounted, and what is in it would be removed: unmount it by hand" % first)
    if state == "gone" and there and acts:
        traces.remove(left)
        left, looked = traces.find(*asked)
    if state == "gone" and not any(left.values()) and os.path.exists(places.MARK) and acts:
        os.unlink(places.MARK)
    kernel = {"foreign_driver": nvidia.is_of_container(), "cilium_programs": cilium.is_in_kernel()}
    observation = {"traces": dict(left, looked=looked), "aside": aside.found(), **kernel}
    shown = {"any": there, "joins": traces.joins(), "refused": refused, "observation": observation}
    module.exit_json(changed=there and state in ("apart", "gone"), **shown)


if __name__ == "__main__":
    main()
