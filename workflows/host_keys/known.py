"""What a known_hosts file says of a host, as OpenSSH reads it: `ssh-keygen -F` knows hashed names, patterns and markers."""

import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workflows.host_keys.model import Key, State

_LINE = re.compile(r"(?:@\S+ )?\S+ (?P<kind>[a-z0-9@.-]+) (?P<blob>[A-Za-z0-9+/=]+)")
_AT_ONCE = 8


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
    done = subprocess.run(["ssh-keygen", "-F", name, "-f", str(file)], capture_output=True, text=True, check=False)
    found: dict[str, list[Key]] = {"": [], "REVOKED": [], "CA": []}
    marker = ""
    for line in done.stdout.splitlines():
        if line.startswith("#"):
            marker = line.rpartition(" ")[2] if line.endswith((" CA", " REVOKED")) else ""
        elif match := _LINE.match(line):
            found[marker].append(Key(kind=match["kind"], blob=match["blob"]))
    return Known(keys=tuple(found[""]), revoked=tuple(found["REVOKED"]), authorities=tuple(found["CA"]))


def write(file: Path, new: Iterable[tuple[str, Key]], forget: Iterable[str] = ()) -> None:
    """Add keys to the file, and take out what it has of the places to forget; whole or not at all. A file that a link leads to is
    written where it lies, and stays its owner's, also where root writes it by sudo."""
    file = file.resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    before = file.stat() if file.exists() else None
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # a name that nobody has put a link at
    os.close(handle)
    draft = Path(name)
    try:
        draft.write_bytes(file.read_bytes() if before else b"")
        _edit(draft, new, forget)
        draft.chmod(stat.S_IMODE(before.st_mode) if before else 0o644)
        _give(draft, before or file.parent.stat())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _edit(draft: Path, new: Iterable[tuple[str, Key]], forget: Iterable[str]) -> None:
    for name in forget:
        subprocess.run(["ssh-keygen", "-R", name, "-f", str(draft)], capture_output=True, check=True)
        draft.with_name(f"{draft.name}.old").unlink(missing_ok=True)
    text = draft.read_text()
    gap = "" if not text or text.endswith("\n") else "\n"
    draft.write_text(text + gap + "".join(f"{name} {key.kind} {key.blob}\n" for name, key in new))


def _give(draft: Path, owner: os.stat_result) -> None:
    """To the owner of the file, or of the folder of a new one; only root may give to others."""
    if os.geteuid() == 0:
        os.chown(draft, owner.st_uid, owner.st_gid)
