"""User and group ids of a namespace: all of the machine's for root, the own and the subordinate ids for other users."""

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
"""Settings that disable user namespaces: file, value that does so, and the command that enables them."""


class IdRange(Struct, frozen=True, kw_only=True):
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

    users: IdRange
    groups: IdRange


def choose() -> Identities | None:
    """Return the id mappings; None for root, who needs no user namespace. Raises BadTask with what is missing here."""
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
            return IdRange(own=own, first=int(first), count=LEAST - 1)
    raise BadTask(
        f"user {user} cannot build images here: {file} gives it no {LEAST} subordinate ids",
        hint=f"build as root, or add a line {user}:FIRST:{LEAST} to {file} (usermod --add-subuids, --add-subgids)",
    )


def _value(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
