#!/usr/bin/python
"""Ansible module that does one action of a server's part in a cluster rollback to the previous RKE2 release."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from ansible.module_utils import host_lock
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import release_backup, rollback, traces

DOCUMENTATION = r"""
module: rke2_rollback
short_description: Rolls one RKE2 server back to the previous release as part of its cluster
description:
  - C(looked) returns this server's progress, and its etcd snapshots from before the newer release.
  - C(begun) records that the rollback has begun. Use it before RKE2 is stopped.
  - C(silenced) removes the virtual address from a stopped server, and fails if the address stays.
  - C(restored) restores etcd from the snapshot, as the only member, by RKE2's own cluster reset. A completed
    reset is not repeated; an interrupted one is.
  - C(cleared) removes etcd's database but not its snapshots, so that the server joins as a new member.
  - C(done) records that this server only has to join its cluster; C(ended) removes the records of the rollback.
options:
  state:
    description: Action to take.
    type: str
    choices: [looked, begun, silenced, restored, cleared, done, ended]
    required: true
  to: {description: The release to roll back to., type: str, required: true}
  installed: {description: The release that is installed., type: str}
  left: {description: The newer release that the rollback leaves., type: str}
  snapshot: {description: Path of the etcd snapshot to restore., type: str}
  seconds: {description: 'Longest time for the reset of etcd, in seconds.', type: int}
  virtual_address: {description: 'Virtual IP address of the servers, which a killed kube-vip leaves on the interface.', type: str}
author: [bringup]
"""

RETURN = r"""
step: {description: 'Progress of this server: empty, begun or done.', type: str, returned: state looked}
left: {description: 'The release that this server leaves; empty: none.', type: str, returned: state looked}
kept: {description: The backed-up release that can be restored., type: str, returned: state looked}
newer: {description: True if the installed release is newer than C(to)., type: bool, returned: state looked}
apart: {description: 'What keeps RKE2 from restoring etcd in its folder; empty: nothing.', type: str, returned: state looked}
snapshots: {description: 'Path and time of each snapshot, the newest first.', type: list, returned: state looked}
"""

SPEC: dict = {
    "state": {"type": "str", "choices": ["looked", "begun", "silenced", "restored", "cleared", "done", "ended"], "required": True},
    "to": {"type": "str", "required": True},
    "installed": {"type": "str", "default": ""},
    "left": {"type": "str", "default": ""},
    "snapshot": {"type": "str", "default": ""},
    "seconds": {"type": "int", "default": 900},
    "virtual_address": {"type": "str", "default": ""},
}


class StepFailed(Exception):
    """Error: an action of the rollback failed; the text gives the reason or RKE2's own output."""


def look(wanted: dict) -> dict:
    """Return how far this server's rollback is (`step`), its releases, and the etcd snapshots that can be restored."""
    newer = rollback.is_newer(wanted["installed"], wanted["to"])
    mark = rollback.read_mark(wanted["to"], wanted["installed"])
    left = wanted["installed"] if newer else mark["left"]
    return {
        "changed": False,
        "step": mark["step"],
        "left": left,
        "kept": release_backup.version_kept() or "",
        "newer": newer,
        "apart": rollback.etcd_obstacle(),
        "snapshots": rollback.offered_snapshots(wanted["left"] or left),
    }


def act(wanted: dict) -> bool:
    """Do the action of the rollback that `wanted["state"]` names, such as `restored`; return True if it changed this host."""
    if wanted["state"] in (rollback.BEGUN, rollback.DONE):
        rollback.write({**{name: wanted[name] for name in ("to", "left", "snapshot")}, "step": wanted["state"]})
        return True
    if wanted["state"] == "silenced":
        return silence(wanted["virtual_address"])
    if wanted["state"] == "restored":
        return rollback.set_back(wanted["snapshot"], lambda: restore(wanted["snapshot"], wanted["seconds"]))
    return bool(rollback.clear()) if wanted["state"] == "cleared" else rollback.forget()


def silence(virtual: str) -> bool:
    """Remove the cluster's virtual IP address from this server; return True if the server had it. Raises StepFailed if it stays."""
    addresses, _ = traces.addresses(virtual)
    traces.remove_addresses(addresses)
    left, looked = traces.addresses(virtual)
    if not looked:
        raise StepFailed("nobody can tell whether this server still has %s: `ip address show` fails" % virtual)
    if left:
        raise StepFailed("%s cannot be removed, and this server would join at itself: `ip address delete` it by hand" % left[0])
    return bool(addresses)


def restore(snapshot: str, seconds: int) -> None:
    """Restore etcd from a snapshot on the server that the other servers will join. Raises StepFailed."""
    rollback.join_nobody()
    reset(snapshot, seconds)


def reset(snapshot: str, seconds: int, program: str = release_backup.PROGRAM) -> None:
    """Run `rke2 server --cluster-reset` with a snapshot. Raises StepFailed if it fails or takes longer than `seconds`."""
    command = [program, "server", "--cluster-reset", "--cluster-reset-restore-path=" + snapshot]
    login = os.umask(host_lock.UMASK)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise StepFailed("etcd was not set back to %s within %d s" % (snapshot, seconds)) from error
    finally:
        os.umask(login)
    if done.returncode != 0:
        output = done.stdout.decode(errors="replace").strip()[-600:]
        raise StepFailed("etcd was not set back to %s, rke2 ended with %d: %s" % (snapshot, done.returncode, output))


def main() -> None:
    """Report the state of the rollback, or do one action of it and fail the module if that action fails."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    wanted: dict[str, Any] = module.params
    if wanted["state"] == "looked":
        module.exit_json(**look(wanted))
    host_lock.hold_or_fail(module, "rke2_rollback")
    try:
        changed = module.check_mode or act(wanted)
    except (StepFailed, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
