"""Read entries of a known_hosts file by `ssh-keygen -F`, which handles hashed names, patterns and markers; write new ones."""

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

from workflows.host_keys.model import Key, KeyState

_LINE = re.compile(r"\s*(?:@\S+[ \t]+)?\S+[ \t]+(?P<kind>[a-z0-9@.-]+)[ \t]+(?P<blob>[A-Za-z0-9+/=]+)")
"""Pattern of a line with a key. OpenSSH accepts any blanks between the parts."""
_AT_ONCE = 8


class NotKnownHosts(ValueError):
    """Error for a known_hosts file with invalid lines, from which `ssh-keygen` removes nothing."""

    hint = "correct or remove these lines, and do it again"

    def __init__(self, file: Path, stderr: str) -> None:
        lines = re.findall(r":(\d+): invalid", stderr)
        what = f"line {', '.join(lines[:5])}" if lines else "some line"
        super().__init__(f"{file} was left as it is: {what} is none of known_hosts")


@dataclass(frozen=True, kw_only=True)
class KnownKeys:
    """Entries of a known_hosts file for one host: its keys, its revoked keys, and the CAs that are trusted for it."""

    keys: tuple[Key, ...] = ()
    revoked: tuple[Key, ...] = ()
    authorities: tuple[Key, ...] = ()

    def states(self, keys: Iterable[Key]) -> list[tuple[Key, KeyState]]:
        """Return each key that the host showed with its state; if one is revoked, return revoked ones only.

        One known key is enough for a host. A host that shows none of its known keys has changed, whatever the key types.
        """
        shown = list(keys)
        if any(key in self.revoked for key in shown):
            return [(key, KeyState.REVOKED) for key in shown if key in self.revoked]
        same = [(key, KeyState.SAME) for key in shown if key in self.keys]
        kinds = {key.kind for key in self.keys}
        changed = [(key, KeyState.CHANGED) for key in shown if key not in self.keys and key.kind in kinds]
        if same or changed:
            return [*same, *changed]
        return [(key, KeyState.CHANGED if self.keys else KeyState.NEW) for key in shown]


def look_up(file: Path, places: Iterable[str]) -> Mapping[str, KnownKeys]:
    """Return a file's entries for each known_hosts name; they are empty if the file does not exist."""
    names = list(dict.fromkeys(places))
    if not file.is_file():
        return {name: KnownKeys() for name in names}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(names, pool.map(lambda name: _one(file, name), names), strict=True))


def _one(file: Path, name: str) -> KnownKeys:
    command = ["ssh-keygen", "-F", name, "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # comments have any bytes
    by_marker: dict[str, list[Key]] = {"": [], "REVOKED": [], "CA": []}
    marker = ""
    for line in done.stdout.splitlines():
        if line.startswith("#"):
            marker = line.rpartition(" ")[2] if line.endswith((" CA", " REVOKED")) else ""
        elif match := _LINE.match(line):
            by_marker[marker].append(Key(kind=match["kind"], blob=match["blob"]))
    return KnownKeys(keys=tuple(by_marker[""]), revoked=tuple(by_marker["REVOKED"]), authorities=tuple(by_marker["CA"]))


def write(file: Path, new: Iterable[tuple[str, Key]], forget: Iterable[str] = ()) -> None:
    """Add keys to a known_hosts file and remove the entries of the names in `forget`, atomically and one writer at a time.

    A symbolic link is followed, and the file keeps its owner also if root writes it by sudo. Raises NotKnownHosts if entries are to
    be removed and the file has invalid lines.
    """
    file = file.resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    with _alone(file.parent):
        _replace(file, new, forget)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder in this context. The file itself cannot carry the lock, since it is replaced."""
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
        if os.geteuid() == 0:  # only root may change owners
            owner = before or file.parent.stat()
            os.chown(draft, owner.st_uid, owner.st_gid)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _edit(draft: Path, new: Iterable[tuple[str, Key]], forget: Iterable[str], file: Path) -> None:
    for name in forget:
        command = ["ssh-keygen", "-R", name, "-f", str(draft)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        draft.with_name(f"{draft.name}.old").unlink(missing_ok=True)
        if done.returncode != 0:
            raise NotKnownHosts(file, done.stderr)
    before = draft.read_bytes()
    gap = b"" if not before or before.endswith(b"\n") else b"\n"
    draft.write_bytes(before + gap + "".join(f"{name} {key.kind} {key.blob}\n" for name, key in new).encode())
