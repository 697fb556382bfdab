"""Find processes, mounts and folders that the boot tests left on this machine, once, after all test processes have ended.

Each process of the tests has a mark in its environment, even if its parent has ended. Temporary folders are made in one folder of
the tests' own. So nothing that belongs to other tests, or to another session on this machine, is reported. Namespaces are not
listed: a namespace exists only as long as a process in it or a mount of it, and both are listed.
"""

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "BRINGUP_BOOT_TIER"
LINKS = ("exe", "cwd", "root")


@dataclass(frozen=True)
class Tier:
    """One run of the tier: its mark, the folder that its tests work in, and the one for what is made for a moment."""

    mark: str
    work: Path
    temporary: Path

    def left(self) -> dict[str, list[str]]:
        """Kind → what is there of it: processes, mounts in any namespace, folders for a moment."""
        found = {"processes": self._processes(), "mounts": self._mounts(), "folders": self._folders()}
        return {kind: names for kind, names in found.items() if names}

    def close(self) -> None:
        """Remove the folder for what is made for a moment, where nothing is in it."""
        with contextlib.suppress(OSError):
            self.temporary.rmdir()

    def _processes(self) -> list[str]:
        mark, places = f"{MARK}={self.mark}".encode(), (str(self.work).encode(), str(self.temporary).encode())
        found = []
        for process in _every():
            with contextlib.suppress(OSError):  # ended meanwhile
                title, known = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
                if mark in known or any(place in title or place in link for place in places for link in _links(process)):
                    found.append(f"{process.name} {title.replace(bytes(1), b' ').decode(errors='replace')[:120]}")
        return sorted(found)

    def _mounts(self) -> list[str]:
        found = set()
        for process in _every():
            with contextlib.suppress(OSError):
                lines = (process / "mountinfo").read_text().splitlines()
                found |= {line.split()[4] for line in lines if str(self.work) in line or str(self.temporary) in line}
        return sorted(found)

    def _folders(self) -> list[str]:
        return sorted(str(path) for path in self.temporary.glob("bringup-*"))


def begun(work: Path) -> Tier:
    """Begin a run: what is started from now on is marked, and makes its folders in one place."""
    temporary = Path(tempfile.mkdtemp(prefix="bringup-boot-"))
    temporary.chmod(0o1777)  # some tests build as another user
    made = Tier(uuid.uuid4().hex, work, temporary)
    os.environ |= {MARK: made.mark, "TMPDIR": str(temporary)}
    tempfile.tempdir = None  # asked for anew
    return made


def _every() -> Iterator[Path]:
    """All processes but this one."""
    return (path for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) != os.getpid())


def _links(process: Path) -> Iterator[bytes]:
    for name in LINKS:
        with contextlib.suppress(OSError):
            yield os.fsencode(os.readlink(process / name))
