"""Users added to a root's account files without its tools, which may be missing and would write the day of the build."""

import os
import shutil
from pathlib import Path
from typing import Final

from steps.nodeimage.contract.resolved_recipe import LayerUser

_DAY: Final = 86400
_SKELETON: Final = Path("/etc/skel")


class CannotAdd(Exception):
    """Error: the user contradicts an existing user, group or file; the message says which."""


def add(user: LayerUser, epoch: int) -> None:
    """Add a user without a password to the root that this process has entered (`chroot.enter`). Raises CannotAdd.

    A home that exists already, such as /srv, keeps its owner and mode. `epoch` (seconds) gives the day of the password change.
    """
    gid = user.gid or user.uid
    home = user.home or f"/home/{user.name}"
    _refuse(Path("/etc/passwd"), user.name, user.uid, "user")
    if not _has(Path("/etc/group"), 2, str(gid)):
        _refuse(Path("/etc/group"), user.name, gid, "group")
        _append(Path("/etc/group"), f"{user.name}:x:{gid}:")
        _append(Path("/etc/gshadow"), f"{user.name}:!::")
    _append(Path("/etc/passwd"), f"{user.name}:x:{user.uid}:{gid}::{home}:{user.shell}")
    _append(Path("/etc/shadow"), f"{user.name}:!:{epoch // _DAY}:0:99999:7:::")
    for group in user.groups:
        _join(group, user.name)
    _home(Path(home), user, gid)


def _refuse(file: Path, name: str, number: int, what: str) -> None:
    for field, value in ((0, name), (2, str(number))):
        if _has(file, field, value):
            raise CannotAdd(f"{what} {name} ({number}): {file} has {value} already, give it another name or number")


def _has(file: Path, field: int, value: str) -> bool:
    lines = file.read_text().splitlines() if file.is_file() else []
    return any(parts[field : field + 1] == [value] for parts in (line.split(":") for line in lines))


def _append(file: Path, line: str) -> None:
    before = file.read_text() if file.is_file() else ""
    _rewrite(file, f"{before}{line}\n")


def _rewrite(file: Path, text: str) -> None:
    """Rewrite an account file in place, so that its owner and mode stay: they differ between the four files."""
    fresh = not file.exists()
    file.write_text(text)
    if fresh:
        file.chmod(0o640 if "shadow" in file.name else 0o644)


def _join(group: str, name: str) -> None:
    if not _has(Path("/etc/group"), 0, group):
        raise CannotAdd(f"user {name}: there is no group {group}, install what brings it or leave it out")
    _edit(Path("/etc/group"), group, name)
    if _has(Path("/etc/gshadow"), 0, group):
        _edit(Path("/etc/gshadow"), group, name)


def _edit(file: Path, group: str, name: str) -> None:
    def joined(line: str) -> str:
        parts = line.split(":")
        if parts[0] != group:
            return line
        members = [member for member in parts[-1].split(",") if member and member != name]
        return ":".join([*parts[:-1], ",".join([*members, name])])

    _rewrite(file, "".join(f"{joined(line)}\n" for line in file.read_text().splitlines()))


def _home(home: Path, user: LayerUser, gid: int) -> None:
    folder = home / ".ssh"
    keys = folder / "authorized_keys"
    missing = next((path for path in (home, folder, keys) if not os.path.lexists(path)), None)
    if user.keys and missing is None:
        raise CannotAdd(f"user {user.name}: {keys} is there already, give it another home or no keys")
    home.parent.mkdir(parents=True, exist_ok=True)
    if missing == home:
        if _SKELETON.is_dir():
            shutil.copytree(_SKELETON, home, symlinks=True)
        home.mkdir(exist_ok=True)
        home.chmod(0o700)
    if user.keys:
        folder.mkdir(exist_ok=True)
        if missing != keys:
            folder.chmod(0o700)
        keys.write_text("".join(f"{key.strip()}\n" for key in user.keys))
        keys.chmod(0o600)
    if missing is not None and os.path.lexists(missing):
        for path in (missing, *sorted(missing.rglob("*"))):
            os.chown(path, user.uid, gid, follow_symlinks=False)
