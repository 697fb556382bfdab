#!/usr/bin/python
"""An Ansible module for the steps of a server on its cluster's way back to the release before."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from ansible.module_utils import alone
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import kept, rollback, traces

DOCUMENTATION = r"""
module: rke2_rollback
short_description: Does the steps of an RKE2 server on its cluster's way back to the release before
description:
  - C(looked) tells how far this server is, and which snapshots of etcd it has from before the release that is left.
  - C(begun) remembers, before anything is stopped, which way is gone.
  - C(silenced) removes the virtual address from a server that has stopped; it fails where that stays.
  - C(restored) sets etcd back to the snapshot, as the only member, by RKE2's own cluster reset. One that
    came to its end is not done twice, one that was cut off is done again.
  - C(cleared) removes the database, without its snapshots, so that the server joins anew.
  - C(done) remembers that this server has nothing more to do than to be in its cluster; C(ended) forgets the way back.
options:
  state:
    description: What is to be done.
    type: str
    choices: [looked, begun, silenced, restored, cleared, done, ended]
    required: true
  to: {description: The release to which the cluster goes back., type: str, required: true}
  installed: {description: The release that is installed., type: str}
  left: {description: The release that is left., type: str}
  snapshot: {description: Path of the snapshot., type: str}
  seconds: {description: How long the reset of etcd may take., type: int}
  virtual_address: {description: 'The address that servers hold themselves, which a kube-vip that is killed leaves.', type: str}
author: [bringup]
"""

RETURN = r"""
step: {description: 'How far this server is: empty, begun or done.', type: str, returned: state looked}
left: {description: 'The release that this server leaves; empty: none.', type: str, returned: state looked}
kept: {description: The release that can be put back., type: str, returned: state looked}
newer: {description: Whether a newer release is installed., type: bool, returned: state looked}
apart: {description: 'What of etcd''s folder lies on a disk of its own; empty: nothing.', type: str, returned: state looked}
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


class Failed(Exception):
    """A step was not done; the text says why, or what RKE2 said."""


def look(asked: dict) -> dict:
    """How far this server is."""
    newer = rollback.is_newer(asked["installed"], asked["to"])
    mark = rollback.seen(asked["to"], asked["installed"])
    left = asked["installed"] if newer else mark["left"]
    return {
        "changed": False,
        "step": mark["step"],
        "left": left,
        "kept": kept.version_kept() or "",
        "newer": newer,
        "apart": rollback.apart(),
        "snapshots": rollback.offered(asked["left"] or left),
    }


def act(asked: dict) -> bool:
    """Do one step; returns whether that was a change."""
    if asked["state"] in (rollback.BEGUN, rollback.DONE):
        rollback.write({"to": asked["to"], "left": asked["left"], "snapshot": asked["snapshot"], "step": asked["state"]})
    elif asked["state"] == "silenced":
        return silence(asked["virtual_address"])
    elif asked["state"] == "restored":
        return rollback.set_back(asked["snapshot"], lambda: restore(asked["snapshot"], asked["seconds"]))
    elif asked["state"] == "cleared":
        return bool(rollback.clear())
    else:
        return rollback.forget()
    return True


def silence(virtual: str) -> bool:
    """Remove the virtual address where this server has it; returns whether it had. Raises Failed."""
    held, _ = traces.addresses(virtual)
    traces.let_go(held)
    left, looked = traces.addresses(virtual)
    if not looked:
        raise Failed("nobody can tell whether this server still has %s: `ip address show` fails" % virtual)
    if left:
        raise Failed("%s cannot be removed, and this server would join at itself: `ip address delete` it by hand" % left[0])
    return bool(held)


def restore(snapshot: str, seconds: int) -> None:
    """Set etcd back, as the server that the others join. Raises Failed."""
    rollback.lead()
    reset(snapshot, seconds)


def reset(snapshot: str, seconds: int, program: str = kept.PROGRAM) -> None:
    """Let RKE2 set its etcd back. Raises Failed."""
    command = [program, "server", "--cluster-reset", "--cluster-reset-restore-path=" + snapshot]
    login = os.umask(alone.UMASK)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Failed("etcd was not set back to %s within %d s" % (snapshot, seconds)) from error
    finally:
        os.umask(login)
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace").strip()[-600:]
        raise Failed("etcd was not set back to %s, rke2 ended with %d: %s" % (snapshot, done.returncode, said))


def main() -> None:
    """One step."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    asked: dict[str, Any] = module.params
    if asked["state"] == "looked":
        module.exit_json(**look(asked))
    alone.or_fail(module, "rke2_rollback")
    try:
        changed = module.check_mode or act(asked)
    except (Failed, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
