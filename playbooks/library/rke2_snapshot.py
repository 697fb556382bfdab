#!/usr/bin/python
"""An Ansible module that saves an RKE2 server's etcd once under a name."""

from __future__ import annotations

from ansible.module_utils import alone
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import kept, snapshots

DOCUMENTATION = r"""
module: rke2_snapshot
short_description: Saves an RKE2 server's etcd once under a name
description:
  - Has RKE2 make a snapshot, unless one of this name was made before and is whole. What a killed run left half done does not count.
options:
  name: {description: Name of the snapshot; RKE2 adds node and time., type: str, required: true}
author: [bringup]
"""

RETURN = r"""
files: {description: Names of the snapshot's files., type: list, returned: success}
"""


def main() -> None:
    """Save, unless it was done."""
    module = AnsibleModule(argument_spec={"name": {"type": "str", "required": True}}, supports_check_mode=True)
    name = module.params["name"]
    alone.or_fail(module, "rke2_snapshot")
    there = snapshots.saved(name)
    if there or module.check_mode:
        module.exit_json(changed=not there, files=there)

    def run() -> tuple:
        code, output, error = module.run_command([kept.PROGRAM, "etcd-snapshot", "save", "--name", name], handle_exceptions=True)
        return code, error.strip() or output

    try:
        module.exit_json(changed=True, files=snapshots.save(name, run))
    except (snapshots.NotSaved, OSError) as error:
        module.fail_json(msg="etcd was not saved: %s" % error)


if __name__ == "__main__":
    main()
