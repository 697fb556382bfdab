#!/usr/bin/python
"""Ansible module that saves a named snapshot of an RKE2 server's etcd, once per name."""

from __future__ import annotations

from ansible.module_utils import host_lock
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import etcd_snapshots, release_backup

DOCUMENTATION = r"""
module: rke2_snapshot
short_description: Saves a snapshot of an RKE2 server's etcd once per name
description:
  - Runs C(rke2 etcd-snapshot save) unless a complete snapshot of this name exists. Partial files of a killed run do not count.
options:
  name: {description: Name of the snapshot; RKE2 appends node name and time., type: str, required: true}
author: [bringup]
"""

RETURN = r"""
files: {description: Names of the snapshot's files., type: list, returned: success}
"""


def main() -> None:
    """Save an etcd snapshot unless a complete one of this name exists, and exit with the names of its files."""
    module = AnsibleModule(argument_spec={"name": {"type": "str", "required": True}}, supports_check_mode=True)
    name = module.params["name"]
    host_lock.hold_or_fail(module, "rke2_snapshot")
    there = etcd_snapshots.complete_files(name)
    if there or module.check_mode:
        module.exit_json(changed=not there, files=there)

    def run() -> tuple:
        code, output, error = module.run_command(
            [release_backup.PROGRAM, "etcd-snapshot", "save", "--name", name], handle_exceptions=True
        )
        return code, error.strip() or output

    try:
        module.exit_json(changed=True, files=etcd_snapshots.save(name, run))
    except (etcd_snapshots.SnapshotFailed, OSError) as error:
        module.fail_json(msg="etcd was not saved: %s" % error)


if __name__ == "__main__":
    main()
