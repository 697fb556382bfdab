"""User accounts of the machine: people with SSH public keys and sudo, and system users that services run as."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from contextlib import contextmanager
from typing import Callable, Iterator

from ansible.module_utils import selinux_labels
from ansible.module_utils.nodeprofile import profile_files
from ansible.module_utils.nodeprofile.item import Item, NodeAccess, settle

NO_LOGIN = "/sbin/nologin"
_KEYS, _FRESH = "authorized_keys", ".bringup-authorized_keys"


def system_users(node: NodeAccess, wanted: dict) -> list:
    """Create each system user (name → comment), with a group of that name and no login, such as RKE2's `etcd`.

    Returns one setting result for each.
    """
    return [_system(node, name, comment) for name, comment in sorted(wanted.items())]


def _system(node: NodeAccess, name: str, comment: str) -> Item:
    def change() -> None:
        if not _exists(grp.getgrnam, name):
            node.must("groupadd", "--system", name)
        if not _exists(pwd.getpwnam, name):
            node.must("useradd", "--system", "--comment", comment, "--shell", NO_LOGIN, "--no-create-home", "--gid", name, name)

    def read() -> str:
        there = [kind for kind, ask in (("user", pwd.getpwnam), ("group", grp.getgrnam)) if _exists(ask, name)]
        return " and ".join(there) or "absent"

    return settle(node, "system user " + name, "user and group", read, change)


def _exists(ask: Callable[[str], object], name: str) -> bool:
    try:
        ask(name)
    except KeyError:
        return False
    return True


def users(node: NodeAccess, wanted: list) -> list:
    """Create people's accounts (`name`, `groups`, `keys`, `sudo`) and return their setting results; other groups and keys stay."""
    return [row for entry in wanted for row in _user(node, entry)]


def _user(node: NodeAccess, entry: dict) -> list:
    name = entry["name"]

    def read() -> str:
        return "present" if _exists(pwd.getpwnam, name) else "absent"

    rows = [settle(node, "user " + name, "present", read, lambda: add_user(node, name))]
    if entry.get("groups"):
        groups = sorted(entry["groups"])
        want = ", ".join(groups)
        rows.append(settle(node, "groups of " + name, want, lambda: _groups(name, groups), lambda: _join(node, name, groups)))
    if entry.get("keys"):
        keys = list(entry["keys"])
        want = "%d of %d" % (len(keys), len(keys))
        rows.append(settle(node, "keys of " + name, want, lambda: _keys(name, keys), lambda: _authorize(name, keys)))
    if entry.get("sudo"):
        path, rule = "/etc/sudoers.d/90-bringup-" + name, "# Made by bringup.\n%s ALL=(ALL) NOPASSWD: ALL\n" % name
        rows.append(profile_files.whole_file(node, "sudo of " + name, path, rule, "0440"))
    return rows


def add_user(node: NodeAccess, name: str) -> None:
    """Create a user with a home, a login shell and a group of the same name."""
    own = ["--gid", name] if _exists(grp.getgrnam, name) else []  # useradd refuses to make a group that is there
    node.must("useradd", "--create-home", "--shell", "/bin/bash", *own, name)


def _groups(name: str, wanted: list) -> str:
    primary = {pwd.getpwnam(name).pw_gid} if _exists(pwd.getpwnam, name) else set()
    own = [group.gr_name for group in grp.getgrall() if name in group.gr_mem or group.gr_gid in primary]
    return ", ".join(sorted(group for group in own if group in wanted)) or "none"


def _join(node: NodeAccess, name: str, groups: list) -> None:
    for group in groups:
        if not _exists(grp.getgrnam, group):
            node.must("groupadd", group)
    node.must("usermod", "--append", "--groups", ",".join(groups), name)


def _folder(name: str) -> str:
    return os.path.join(pwd.getpwnam(name).pw_dir, ".ssh")


def _key_of_line(line: str) -> str:
    """Return type and key of an authorized_keys line, without options and comment; empty for other lines."""
    match = None if line.lstrip().startswith("#") else re.search(r"((?:sk-)?(?:ssh|ecdsa)-\S+)\s+(\S+)", line)
    return " ".join(match.groups()) if match else ""


def missing_keys(text: str, wanted: list) -> list:
    """Return those of the wanted SSH keys that the text of an authorized_keys file lacks."""
    have = {_key_of_line(line) for line in text.splitlines()}
    return [key.strip() for key in wanted if _key_of_line(key) not in have]


def _keys(name: str, wanted: list) -> str:
    missing = len(wanted)
    if _exists(pwd.getpwnam, name) and os.path.lexists(_folder(name)):
        with _open_folder(_folder(name)) as folder_fd:
            missing = len(missing_keys(read_keys(folder_fd), wanted))
    return "%d of %d" % (len(wanted) - missing, len(wanted))


@contextmanager
def _open_folder(folder: str) -> Iterator[int]:
    """Yield an open handle of a user's folder, because the user may turn the folder into a link between later steps."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def read_keys(folder_fd: int) -> str:
    """Return the text of authorized_keys in the open folder `folder_fd`; empty if the file is missing.

    Raises OSError for a link, which could lead to a file that only root may read.
    """
    try:
        # not blocking: the user may have put a FIFO there, which would hold root for ever
        handle = os.open(_KEYS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder_fd)
    except FileNotFoundError:
        return ""
    with os.fdopen(handle, errors="replace") as source:
        return source.read()


def _authorize(name: str, wanted: list) -> None:
    """Add the wanted SSH keys that are missing to the user's authorized_keys. Raises OSError where a link takes a file's place."""
    user, folder = pwd.getpwnam(name), _folder(name)
    # the folder is the user's own: every step below refuses links, which could lead to files of root's
    fresh = not os.path.lexists(folder)
    if fresh:
        os.mkdir(folder, mode=0o700)
    with _open_folder(folder) as folder_fd:
        if fresh:
            selinux_labels.set_label(folder_fd, selinux_labels.policy_label(folder, stat.S_IFDIR))
        text = read_keys(folder_fd)
        added = "".join(key + "\n" for key in missing_keys(text, wanted))
        os.fchown(folder_fd, user.pw_uid, user.pw_gid)
        handle = os.open(_FRESH, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600, dir_fd=folder_fd)
        with os.fdopen(handle, "w") as out:
            out.write(text + ("" if text.endswith("\n") or not text else "\n") + added)
            os.fchown(out.fileno(), user.pw_uid, user.pw_gid)
        os.replace(_FRESH, _KEYS, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
