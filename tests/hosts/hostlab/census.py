"""What of hosts and plays is on this machine now, by name: before and after a test tier it must be the same."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from hostlab import debian, host, lab, network

PLAY = b"BRINGUP_PLAY="
LEAVES = re.compile(r"/bringup-n\d+$")


def census() -> dict[str, list[str]]:
    """Kind → names of what is there."""
    return {
        "hosts": network.ours(),
        "links": [name for name in sorted(os.listdir("/sys/class/net")) if name.startswith("vb-") or name == network.BRIDGE],
        "mounts": _mounts(),
        "cgroups": _cgroups(),
        "processes": _processes(),
        "folders": _folders(),
        "inotify instances": [lab.INOTIFY.read_text().strip()],
    }


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
    return sorted(str(path) for top in tops for path in top.glob("bringup-n*") if LEAVES.search(str(path)))


def _processes() -> list[str]:
    """Inits of hosts and whatever is in their namespaces, plays and their SSH connections."""
    inside = {pid for name in network.ours() for pid in network.processes(name)}
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            environment, title = (process / "environ").read_bytes(), (process / "cmdline").read_bytes()
        except OSError:
            continue  # ended meanwhile
        play = PLAY in environment or title.startswith(b"ssh: " + tempfile.gettempdir().encode() + b"/bringup-")
        launcher = str(host.ENTER).encode() in title
        if int(process.name) in inside or play or launcher:
            found.append(title.replace(b"\0", b" ").decode(errors="replace").strip()[:120])
    return sorted(found)


def _folders() -> list[str]:
    """The lab's folder, and private folders of plays: they hold keys."""
    plays = [str(path) for path in Path(tempfile.gettempdir()).glob("bringup-*") if (path / "ssh_config").exists()]
    return sorted(plays) + ([str(lab.folder())] if lab.folder().exists() else [])
