"""List what hosts and plays have on this machine, by name: after the tests there must be no more than before."""

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from hostlab import debian, host, lab, network

PLAY = b"BRINGUP_PLAY="
PLAYS_OF_OTHERS_SECONDS = 30.0
"""Tests beside this tier play too, each for a few seconds."""
LEAF = re.compile(r"-n\d+$")
OTHER_TIERS = re.compile(rb"PYTEST_CURRENT_TEST=tests/(?!hosts/)")
"""In the environment of what a test of another tier has started."""


def census(work: Path | None = None) -> dict[str, list[str]]:
    """Kind → names of what is there. `work` is the folder of a test or of all: whoever was started with a path in it is one of its
    programs, be it an engine, a step, a simulator or a server."""
    return {
        "hosts": network.ours(),
        "links": [name for name in sorted(os.listdir("/sys/class/net")) if name.startswith("vb-") or name == network.BRIDGE],
        "mounts": _mounts(),
        "cgroups": _cgroups(),
        "processes": _processes(),
        "programs": _programs(str(work).encode()) if work else [],
        "folders": _folders(),
        "inotify instances": [lab.INOTIFY.read_text().strip()],
    }


def left(before: Mapping[str, list[str]], work: Path | None = None) -> dict[str, list[str]]:
    """Return what exists now and did not before; leftovers of others may have disappeared meanwhile."""
    now = {kind: [name for name in names if name not in before[kind]] for kind, names in census(work).items()}
    return {kind: names for kind, names in now.items() if names}


def _mounts() -> list[str]:
    """Mount points in the lab's folder, and overlays on the shared root."""
    ours = (str(lab.folder()), str(debian.cache_folder() / "hosts"))
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(line.split()[4] for line in lines if any(place in line for place in ours))


def _cgroups() -> list[str]:
    """Leaves of hosts, read where cgroup v2 is mounted; a mount of our own comes and goes with the hosts."""
    listed = subprocess.run(
        ["findmnt", "--list", "--noheadings", "--types", "cgroup2", "--output", "TARGET"], capture_output=True, text=True
    )
    tops = [Path(line.strip()) for line in listed.stdout.splitlines() if Path(line.strip()) != lab.folder() / "cgroup"]
    return sorted(str(path) for top in tops for path in top.glob(f"{lab.folder().name}-n*") if LEAF.search(path.name))


def plays() -> list[str]:
    """Plays and their SSH connections; not those of other tiers, whose tests run beside this one."""
    return sorted(_said(title) for _, environment, title in _every() if _is_play(environment, title))


def _is_play(environment: bytes, title: bytes) -> bool:
    others = OTHER_TIERS.search(environment) is not None
    return (PLAY in environment and not others) or title.startswith(b"ssh: " + tempfile.gettempdir().encode() + b"/bringup-")


def _processes() -> list[str]:
    """Inits of hosts and whatever is in their namespaces, plays and their SSH connections."""
    inside = {pid for name in network.ours() for pid in network.processes(name)}
    found = []
    for pid, environment, title in _every():
        launcher = str(host.ENTER).encode() in title
        if pid in inside or launcher or _is_play(environment, title):
            found.append(_said(title))
    return sorted(found)


def _programs(place: bytes) -> list[str]:
    """Processes whose command line or environment names a place, but this one."""
    return sorted(_said(title) for pid, known, title in _every() if place in known + title and pid != os.getpid())


def _every() -> Iterator[tuple[int, bytes, bytes]]:
    """Number, environment and command line of every process."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):  # ended meanwhile
                yield int(process.name), (process / "environ").read_bytes(), (process / "cmdline").read_bytes()


def _said(title: bytes) -> str:
    return title.replace(b"\0", b" ").decode(errors="replace").strip()[:120]


def _folders() -> list[str]:
    """The lab's folder, and private folders of plays: they hold keys."""
    plays = [str(path) for path in Path(tempfile.gettempdir()).glob("bringup-*") if (path / "ssh_config").exists()]
    return sorted(plays) + ([str(lab.folder())] if lab.folder().exists() else [])
