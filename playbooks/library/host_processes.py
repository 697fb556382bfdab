#!/usr/bin/python
"""Ansible module that reports who works on its host, users outside of pods and slurmd, and tells its installation; read-only."""

from __future__ import annotations

import os
import pwd

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: host_processes
short_description: Reports slurmd, processes of users, and a node of RKE2
description:
  - Counts the processes of each user outside of pods, without those of the user that logs in for this module. It changes nothing.
  - Tells by data and processes if the host is, or was, a node of RKE2; programs and images that an installer brings do not count.
author: [bringup]
"""

RETURN = r"""
observation:
  description: 'slurmd: True if one runs, in a pod too; users: number of processes by user; rke2: True if RKE2 runs or has left its
    data; boot: id of the boot, another one after each; empty if hidden; system: machine id and the time when its file was made,
    which an installation renews and a boot keeps; empty if there is none; volatile: True if / lies in memory.'
  type: dict
"""

FIRST_USER, NOBODY = 1000, 65534
DYNAMIC = range(61184, 65520)
"""User ids that systemd gives to services with DynamicUser (https://systemd.io/UIDS-GIDS/)."""
MANAGERS = ("systemd", "(sd-pam)")
"""Processes that every login leaves for a while, and for ever with lingering."""


MEMORY = ("tmpfs", "ramfs", "rootfs", "overlay", "squashfs")
"""File systems of / that an installer runs from, and a machine that boots over the network."""
NODE_DATA = ("var/lib/rancher/rke2/server/db", "var/lib/rancher/rke2/agent/kubelet.kubeconfig", "etc/rancher/node/password")
"""Files and folders that RKE2 makes once it has started as a server, as an agent, and as either."""


def observe(proc: str, login: int, root: str) -> dict:
    """Return the observation of the processes below `proc`, without those of user id `login`, and of the files below `root`."""
    users, slurmd = {}, False
    rke2 = any(os.path.lexists(os.path.join(root, path)) for path in NODE_DATA)
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            name, uid = _read(proc, pid, "comm").strip(), _uid(_read(proc, pid, "status"))
            in_pod = "kubepods" in _read(proc, pid, "cgroup")
        except OSError:
            continue  # it has ended
        slurmd, rke2 = slurmd or name == "slurmd", rke2 or name == "rke2"
        if uid >= FIRST_USER and uid not in (login, NOBODY) and uid not in DYNAMIC and name not in MANAGERS and not in_pod:
            users[uid] = users.get(uid, 0) + 1
    installation = {"boot": _boot(proc), "system": _system(root), "volatile": _root_type(proc) in MEMORY}
    return {"slurmd": slurmd, "users": {_name(uid): count for uid, count in users.items()}, "rke2": rke2, **installation}


def _system(root: str) -> str:
    """Return what tells one installation from the next; empty if the machine has no id.

    The id alone does not: systemd may take it from the firmware, as of a virtual machine (machine-id(5)). So the time is added when
    the file was written, which neither a boot nor an archive's own times change: that of its inode.
    """
    path = os.path.join(root, "etc/machine-id")
    try:
        with open(path, errors="replace") as stream:
            name, changed = stream.read(64).strip(), os.fstat(stream.fileno()).st_ctime_ns
    except OSError:
        return ""
    return f"{name} {changed}" if name and name != "uninitialized" else ""


def _root_type(proc: str) -> str:
    """Return the type of the file system at /, the last one mounted there; empty if it is hidden."""
    try:
        mounts = [line.split() for line in _read(proc, "1", "mounts").splitlines()]
    except OSError:
        return ""
    return next((fields[2] for fields in reversed(mounts) if len(fields) > 2 and fields[1] == "/"), "")


def _boot(proc: str) -> str:
    try:
        return _read(proc, "sys/kernel/random", "boot_id").strip()
    except OSError:
        return ""  # a container may hide it; who works there is reported all the same


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
    module.exit_json(changed=False, observation=observe("/proc", int(os.environ.get("SUDO_UID") or os.getuid()), "/"))


if __name__ == "__main__":
    main()
