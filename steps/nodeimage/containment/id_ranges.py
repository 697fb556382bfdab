"""User and group ids of an image build: root uses the machine's ids, other users a namespace with their subordinate ids."""

import os
import pwd
import shutil
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps.errors import BadTask
from steps.nodeimage import kernel_calls

LEAST: Final = 65536
"""Number of ids that a root file system may use: 0 to 65535; `nobody` of Debian is 65534."""
_SWITCHES: Final = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
)
"""Kernel settings that disable user namespaces: file, the value that does so, and the setting that enables them."""


class IdRange(Struct, frozen=True, kw_only=True):
    """Mapping of a namespace's ids: 0 is the user's (or group's) `own` id, 1 to `count` are subordinate ids from `first` on."""

    own: int
    first: int
    count: int

    @property
    def words(self) -> list[str]:
        """Arguments of newuidmap or newgidmap after the process id."""
        return [str(number) for number in (0, self.own, 1, 1, self.first, self.count)]


class Identities(Struct, frozen=True, kw_only=True):
    """User and group ids of a user namespace, made by `choose` and written by `namespace_child`."""

    users: IdRange
    groups: IdRange


def choose() -> Identities | None:
    """Return the id mappings for a build's user namespace; None for root, who needs none.

    Raises BadTask if this machine lacks a program, a kernel setting or subordinate ids for it.
    """
    if kernel_calls.may_mount():
        return None
    if os.geteuid() == 0:
        raise BadTask(
            "this root may not mount (no capability SYS_ADMIN), and node images are built in mount namespaces",
            hint="give the container SYS_ADMIN (privileged), or build as a user with user namespaces",
        )
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    for path, off, fix in _SWITCHES:
        if _value(path) == off:
            raise BadTask(f"user {user} cannot build images here: {path} is {off}", hint=f"build as root, or set {fix}")
    if shutil.which("newuidmap") is None:
        raise BadTask(
            f"user {user} cannot build images here: newuidmap is missing", hint="build as root, or install package uidmap"
        )
    return Identities(users=_range(Path("/etc/subuid"), user, os.geteuid()), groups=_range(Path("/etc/subgid"), user, os.getegid()))


def _range(file: Path, user: str, own: int) -> IdRange:
    lines = file.read_text().splitlines() if file.is_file() else []
    for line in lines:
        name, _, rest = line.strip().partition(":")
        first, _, count = rest.partition(":")
        if name in (user, str(os.geteuid())) and first.isdigit() and count.isdigit() and int(count) >= LEAST - 1:
            return IdRange(own=own, first=int(first), count=LEAST - 1)  # id 0 is the user's own
    raise BadTask(
        f"user {user} cannot build images here: {file} gives it no {LEAST} subordinate ids",
        hint=f"build as root, or add a line {user}:FIRST:{LEAST} to {file} (usermod --add-subuids, --add-subgids)",
    )


def _value(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
