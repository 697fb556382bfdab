#!/usr/bin/python
"""Ansible module that reports whose processes run on its host: a slurmd, and those of users outside of pods; read-only."""

from __future__ import annotations

import os
import pwd

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: host_processes
short_description: Reports slurmd and processes of users
description:
  - Counts the processes of each user outside of pods, without those of the user that logs in for this module. It changes nothing.
author: [bringup]
"""

RETURN = r"""
observation: {description: 'slurmd: True if one runs, in a pod too; users: number of processes by user.', type: dict}
"""

FIRST_USER, NOBODY = 1000, 65534
DYNAMIC = range(61184, 65520)
"""User ids that systemd gives to services with DynamicUser (https://systemd.io/UIDS-GIDS/)."""
MANAGERS = ("systemd", "(sd-pam)")
"""Processes that every login leaves for a while, and for ever with lingering."""


def observe(proc: str, login: int) -> dict:
    """Return the observation of the processes below `proc`; those of user id `login` do not count."""
    users, slurmd = {}, False
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            name, uid = _read(proc, pid, "comm").strip(), _uid(_read(proc, pid, "status"))
            in_pod = "kubepods" in _read(proc, pid, "cgroup")
        except OSError:
            continue  # it has ended
        slurmd = slurmd or name == "slurmd"
        if uid >= FIRST_USER and uid not in (login, NOBODY) and uid not in DYNAMIC and name not in MANAGERS and not in_pod:
            users[uid] = users.get(uid, 0) + 1
    return {"slurmd": slurmd, "users": {_name(uid): count for uid, count in users.items()}}


def _read(proc: str, pid: str, name: str) -> str:
    with open(os.path.join(proc, pid, name), errors="replace") as stream:
        return stream.read()


def _uid(status: str) -> int:
    """Return the effective user id in the text of /proc/PID/status; 0 if it has none."""
    fields = next((line.split() for line in status.splitlines() if line.startswith("Uid:")), [])
    return int(fields[2]) if len(fields) > 2 else 0


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def main() -> None:
    """Exit with the observation of this host."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    # sudo tells who logged in
    module.exit_json(changed=False, observation=observe("/proc", int(os.environ.get("SUDO_UID") or os.getuid())))


if __name__ == "__main__":
    main()
