"""What a known_hosts file says of a host, as OpenSSH reads it: `ssh-keygen -F` knows hashed names, patterns and markers."""

import contextlib
import fcntl
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workflows.host_keys.model import Key, State

_LINE = re.compile(r"\s*(?:@\S+[ \t]+)?\S+[ \t]+(?P<kind>[a-z0-9@.-]+)[ \t]+(?P<blob>[A-Za-z0-9+/=]+)")
"""A line with a key: between its parts OpenSSH takes any blanks."""
_AT_ONCE = 8


class NotKnownHosts(ValueError):
    """A file of which `ssh-keygen` takes nothing out, since some of its lines are no keys."""

    hint = "correct or remove these lines, and do it again"

    def __init__(self, file: Path, said: str) -> None:
        lines = re.findall(r":(\d+): invalid", said)
        what = f"line {', '.join(lines[:5])}" if lines else "some line"
        super().__init__(f"{file} was left as it is: {what} is none of known_hosts")


@dataclass(frozen=True, kw_only=True)
class Known:
    """Keys that a file has of one host, those that it revokes there, and the CAs that it trusts there."""

    keys: tuple[Key, ...] = ()
    revoked: tuple[Key, ...] = ()
    authorities: tuple[Key, ...] = ()

    def states(self, keys: Iterable[Key]) -> list[tuple[Key, State]]:
        """What each key of the host is. A host with a key that is known needs no other; one that shows none of its known keys has
        changed, whatever their types are."""
        shown = list(keys)
        if any(key in self.revoked for key in shown):
            return [(key, State.REVOKED) for key in shown if key in self.revoked]
        same = [(key, State.SAME) for key in shown if key in self.keys]
        kinds = {key.kind for key in self.keys}
        changed = [(key, State.CHANGED) for key in shown if key not in self.keys and key.kind in kinds]
        if same or changed:
            return [*same, *changed]
        return [(key, State.CHANGED if self.keys else State.NEW) for key in shown]


def look_up(file: Path, places: Iterable[str]) -> Mapping[str, Known]:
    """What the file says of each place; nothing where there is no such file."""
    names = list(dict.fromkeys(places))
    if not file.is_file():
        return {name: Known() for name in names}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(names, pool.map(lambda name: _one(file, name), names), strict=True))


def _one(file: Path, name: str) -> Known:
    command = ["ssh-keygen", "-F", name, "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # comments have any bytes
    found: dict[str, list[Key]] = {"": [], "REVOKED": [], "CA": []}
    marker = ""
    for line in done.stdout.splitlines():
        if line.startswith("#"):
            marker = line.rpartition(" ")[2] if line.endswith((" CA", " REVOKED")) else ""
        elif match := _LINE.match(line):
            found[marker].append(Key(kind=match["kind"], blob=match["blob"]))
    return Known(keys=tuple(found[""]), revoked=tuple(found["REVOKED"]), authorities=tuple(found["CA"]))


def write(file: Path, new: Iterable[tuple[str, Key]], forget: Iterable[str] = ()) -> None:
    """Add keys to the file, and take out what it has of the places to forget; whole or not at all, and one writer after another. A
    file that a link leads to is written where it lies, and stays its owner's, also where root writes it by sudo.

    Raises NotKnownHosts where keys are to be forgotten and lines of the file cannot be read.
    """
    file = file.resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    with _alone(file.parent):
        _replace(file, new, forget)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else of us writes in this folder meanwhile. The lock is the folder's own, since the file is another one afterwards."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # network file systems may have no such locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(file: Path, new: Iterable[tuple[str, Key]], forget: Iterable[str]) -> None:
    before = file.stat() if file.exists() else None
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # a name that nobody has put a link at
    os.close(handle)
    draft = Path(name)
    try:
        draft.write_bytes(file.read_bytes() if before else b"")
        _edit(draft, new, forget, file)
        draft.chmod(stat.S_IMODE(before.st_mode) if before else 0o644)
        _give(draft, before or file.parent.stat())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _edit(draft: Path, new: Iterable[tuple[str, Key]], forget: Iterable[str], file: Path) -> None:
    for name in forget:
        done = subprocess.run(
            ["ssh-keygen", "-R", name, "-f", str(draft)], capture_output=True, text=True, errors="replace", check=False
        )
        draft.with_name(f"{draft.name}.old").unlink(missing_ok=True)
        if done.returncode != 0:
            raise NotKnownHosts(file, done.stderr)
    before = draft.read_bytes()
    gap = b"" if not before or before.endswith(b"\n") else b"\n"
    draft.write_bytes(before + gap + "".join(f"{name} {key.kind} {key.blob}\n" for name, key in new).encode())


def _give(draft: Path, owner: os.stat_result) -> None:
    """To the owner of the file, or of the folder of a new one; only root may give to others."""
    if os.geteuid() == 0:
        os.chown(draft, owner.st_uid, owner.st_gid)
