"""Users of the machine: people with their public keys and sudo, and the users that services run as."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from contextlib import contextmanager
from typing import Callable, Iterator

from ansible.module_utils import labels
from ansible.module_utils.nodeprofile import files
from ansible.module_utils.nodeprofile.item import Item, Node, settle

NO_LOGIN = "/sbin/nologin"
_KEYS, _FRESH = "authorized_keys", ".bringup-authorized_keys"


def system_users(node: Node, wanted: dict) -> list:
    """Users without a login, each with a group of its name, by name with their comment (RKE2's CIS profile wants `etcd`)."""
    return [_system(node, name, comment) for name, comment in sorted(wanted.items())]


def _system(node: Node, name: str, comment: str) -> Item:
    def change() -> None:
        if not _known(grp.getgrnam, name):
            node.must("groupadd", "--system", name)
        if not _known(pwd.getpwnam, name):
            node.must("useradd", "--system", "--comment", comment, "--shell", NO_LOGIN, "--no-create-home", "--gid", name, name)

    def read() -> str:
        there = [kind for kind, ask in (("user", pwd.getpwnam), ("group", grp.getgrnam)) if _known(ask, name)]
        return " and ".join(there) or "absent"

    return settle(node, "system user " + name, "user and group", read, change)


def _known(ask: Callable[[str], object], name: str) -> bool:
    try:
        ask(name)
    except KeyError:
        return False
    return True


def users(node: Node, wanted: list) -> list:
    """People: `name`, `groups`, `keys`, `sudo`. What they have beyond that stays theirs."""
    return [row for entry in wanted for row in _user(node, entry)]


def _user(node: Node, entry: dict) -> list:
    name = entry["name"]
    rows = [settle(node, "user " + name, "present", lambda: _present(name), lambda: make(node, name))]
    if entry.get("groups"):
        groups = sorted(entry["groups"])
        rows.append(
            settle(node, "groups of " + name, ", ".join(groups), lambda: _groups(name, groups), lambda: _join(node, name, groups))
        )
    if entry.get("keys"):
        keys = list(entry["keys"])
        want = "%d of %d" % (len(keys), len(keys))
        rows.append(settle(node, "keys of " + name, want, lambda: _keys(name, keys), lambda: _authorize(name, keys)))
    if entry.get("sudo"):
        path = "/etc/sudoers.d/90-bringup-" + name
        rows.append(files.whole(node, "sudo of " + name, path, "# Made by bringup.\n%s ALL=(ALL) NOPASSWD: ALL\n" % name, "0440"))
    return rows


def _present(name: str) -> str:
    return "present" if _known(pwd.getpwnam, name) else "absent"


def make(node: Node, name: str) -> None:
    """A user with a home and a login shell, and a group of the same name."""
    own = ["--gid", name] if _known(grp.getgrnam, name) else []  # useradd refuses to make a group that is there
    node.must("useradd", "--create-home", "--shell", "/bin/bash", *own, name)


def _groups(name: str, wanted: list) -> str:
    primary = {pwd.getpwnam(name).pw_gid} if _known(pwd.getpwnam, name) else set()
    return ", ".join(group.gr_name for group in _sorted_groups() if group.gr_name in wanted and _in(group, name, primary)) or "none"


def _sorted_groups() -> list:
    return sorted(grp.getgrall(), key=lambda group: group.gr_name)


def _in(group: grp.struct_group, name: str, primary: set) -> bool:
    return name in group.gr_mem or group.gr_gid in primary


def _join(node: Node, name: str, groups: list) -> None:
    for group in groups:
        if not _known(grp.getgrnam, group):
            node.must("groupadd", group)
    node.must("usermod", "--append", "--groups", ",".join(groups), name)


def _folder(name: str) -> str:
    return os.path.join(pwd.getpwnam(name).pw_dir, ".ssh")


def _material(line: str) -> str:
    """Type and key of a line, without options and comment; none where the whole line is one."""
    found = None if line.lstrip().startswith("#") else re.search(r"((?:sk-)?(?:ssh|ecdsa)-\S+)\s+(\S+)", line)
    return " ".join(found.groups()) if found else ""


def lacking(text: str, wanted: list) -> list:
    """The keys that a file of authorized keys does not have."""
    have = {_material(line) for line in text.splitlines()}
    return [key.strip() for key in wanted if _material(key) not in have]


def _keys(name: str, wanted: list) -> str:
    missing = len(wanted)
    if _known(pwd.getpwnam, name) and os.path.lexists(_folder(name)):
        with _held(_folder(name)) as held:
            missing = len(lacking(written(held), wanted))
    return "%d of %d" % (len(wanted) - missing, len(wanted))


@contextmanager
def _held(folder: str) -> Iterator[int]:
    """The folder is the user's own, who may turn it into a link at any time: it is held open instead."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def written(held: int) -> str:
    """The keys that are there. A link in their place is refused: it may lead to what root alone may read, and we give to the user
    what we read."""
    try:
        handle = os.open(_KEYS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=held)
    except FileNotFoundError:
        return ""
    with os.fdopen(handle, errors="replace") as source:
        return source.read()


def _authorize(name: str, wanted: list) -> None:
    """Add the keys that lack."""
    user, folder = pwd.getpwnam(name), _folder(name)
    fresh = not os.path.lexists(folder)
    if fresh:
        os.mkdir(folder, mode=0o700)
    with _held(folder) as held:
        if fresh:
            labels.give(held, labels.of_policy(folder, stat.S_IFDIR))
        text = written(held)
        content = text + ("" if text.endswith("\n") or not text else "\n") + "".join(key + "\n" for key in lacking(text, wanted))
        os.fchown(held, user.pw_uid, user.pw_gid)
        handle = os.open(_FRESH, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600, dir_fd=held)
        with os.fdopen(handle, "w") as out:
            out.write(content)
            os.fchown(out.fileno(), user.pw_uid, user.pw_gid)
        os.replace(_FRESH, _KEYS, src_dir_fd=held, dst_dir_fd=held)
