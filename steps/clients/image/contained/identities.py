"""Which user and group ids a namespace has: all of the machine's for root, a user's own and its subordinate ones for others."""

import os
import pwd
import shutil
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps.clients.image.contained import kernel
from steps.errors import BadTask

LEAST: Final = 65536
"""Ids that a root file system may use: 0 to 65535, `nobody` of Debian is 65534."""
_SWITCHES: Final = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
)
"""Settings that take user namespaces away: file, value that does so, and what gives them back."""


class Mapping(Struct, frozen=True, kw_only=True):
    """Ids of a user namespace: 0 is this user (or group), 1 and above are `count` ids from `first` on."""

    own: int
    first: int
    count: int

    @property
    def words(self) -> list[str]:
        """Arguments of newuidmap and newgidmap after the process."""
        return [str(number) for number in (0, self.own, 1, 1, self.first, self.count)]


class Identities(Struct, frozen=True, kw_only=True):
    """Both mappings of a user namespace."""

    users: Mapping
    groups: Mapping


def choose() -> Identities | None:
    """None for root, who needs no user namespace. Raises BadTask with what is missing here."""
    if kernel.may_mount():
        return None
    if os.geteuid() == 0:
        raise BadTask(
            "this root may not mount (no capability SYS_ADMIN), and node images are built in mount namespaces",
            hint="give the container SYS_ADMIN (privileged), or build as a user with user namespaces",
        )
    user = pwd.getpwuid(os.geteuid()).pw_name if _known(os.geteuid()) else str(os.geteuid())
    for path, off, fix in _SWITCHES:
        if _value(path) == off:
            raise BadTask(f"user {user} cannot build images here: {path} is {off}", hint=f"build as root, or set {fix}")
    if shutil.which("newuidmap") is None:
        raise BadTask(
            f"user {user} cannot build images here: newuidmap is missing", hint="build as root, or install package uidmap"
        )
    return Identities(
        users=_range(Path("/etc/subuid"), user, os.geteuid()),
        groups=_range(Path("/etc/subgid"), user, os.getegid()),
    )


def _range(file: Path, user: str, own: int) -> Mapping:
    lines = file.read_text().splitlines() if file.is_file() else []
    for line in lines:
        name, _, rest = line.strip().partition(":")
        first, _, count = rest.partition(":")
        if name in (user, str(os.geteuid())) and first.isdigit() and count.isdigit() and int(count) >= LEAST - 1:
            return Mapping(own=own, first=int(first), count=LEAST - 1)
    raise BadTask(
        f"user {user} cannot build images here: {file} gives it no {LEAST} subordinate ids",
        hint=f"build as root, or add a line {user}:FIRST:{LEAST} to {file} (usermod --add-subuids, --add-subgids)",
    )


def _known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _value(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
