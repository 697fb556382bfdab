"""The engine, or an SSH session, is killed at random points; going on ends in the same state, and no change is made twice.

The hosts count themselves: an audit hook of their Python writes down every file put in place, every sysctl, every host name, and
what it tells systemd to change.
"""

import collections
import hashlib
import itertools
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from bringup_command import Command
from hostlab import lab
from hostlab.census import census
from hostlab.host import Host
from hostlab.lab import Init, Lab
from killing import chance, disturb

pytestmark = pytest.mark.sampled("kills")

LOG = "var/log/changes"
SYSTEMD = ("enable", "disable", "mask", "daemon-reexec")
AUDIT = f"""
import os, sys
def hook(event, arguments):
    if event == "os.rename" and str(arguments[1]).startswith("/etc/"):
        change = str(arguments[1])
    elif event == "open" and str(arguments[0]).startswith("/proc/sys/") and "w" in str(arguments[1]):
        change = str(arguments[0])
    elif event == "socket.sethostname":
        change = "hostname"
    elif event == "subprocess.Popen" and [*arguments[1], ""][1] in {SYSTEMD}:
        change = " ".join(map(str, arguments[1]))
    else:
        return
    handle = os.open("/{LOG}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (change + "\\n").encode())
    os.close(handle)
sys.addaudithook(hook)
"""
OWN = ("ssh/", "machine-id", "python3.11/")
"""Below /etc: what differs from host to host, and our hook."""

MOST_KILLS = 6
"""In one run: then it may end."""


RUN = ("run", "three-hosts", "--only", "os_prep")


class Site:
    """Hosts with systemd as new and a home for their run."""

    def __init__(self, home: Path) -> None:
        lab.down()
        self.lab: Lab = lab.up(3, Init.SYSTEMD, prepared=True)
        self.bringup = Command(self.lab.folder, home)
        self.log = home.with_suffix(".log")
        for host in self.lab.hosts:
            host.run("dpkg", "--purge", "socat")
            host.run("sh", "-c", ": > /var/log/dpkg.log")
            host.run("sh", "-c", "cat > /etc/python3.11/sitecustomize.py", text=AUDIT)

    def start(self) -> subprocess.Popen[str]:
        """Run, or go on where a run was begun."""
        begun = any(self.bringup.home.glob("store/runs/*"))
        return self.bringup.start(*(("resume",) if begun else RUN), log=self.log)

    def changed(self) -> list[str]:
        """Run from its beginning, undisturbed; what it says that it changed."""
        done = self.bringup.call(*RUN, check=True)
        assert "set aside" not in done.stdout, done.stdout
        return [change for row in self.bringup.report()["attempts"] if row["task"] == "play" for change in row["changes"]]

    def state(self) -> dict[str, dict[str, str]]:
        """Host → what lies in its own /etc, and its packages."""
        return {host.name: {**_files(host), "packages": host.run("dpkg-query", "--show")} for host in self.lab.hosts}

    def changes(self) -> dict[str, collections.Counter[str]]:
        """Host → how often each thing was changed, and how often the package was installed."""
        counted = {}
        for host in self.lab.hosts:
            lines = (host.folder / "upper" / LOG).read_text().splitlines()
            history = host.run("cat", "/var/log/dpkg.log").splitlines()
            lines += ["package socat" for line in history if line.split()[2:4] == ["install", "socat:amd64"]]
            counted[host.name] = collections.Counter(lines)
        return counted


def _files(host: Host) -> dict[str, str]:
    top = host.folder / "upper/etc"
    found = {str(path.relative_to(top)): path for path in sorted(top.rglob("*")) if path.is_symlink() or path.is_file()}
    return {name: _content(path) for name, path in found.items() if not name.startswith(OWN)}


def _content(path: Path) -> str:
    """Return a text that differs if a file's content, or the target of a link, differs."""
    return f"-> {path.readlink()}" if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()[:12]


@pytest.mark.parametrize("wanted", [3, pytest.param(30, marks=pytest.mark.long)])
def test_killed_at_random_points_it_ends_in_the_same_state_with_each_change_made_once(up: Any, tmp_path: Path, wanted: int) -> None:
    luck = chance()
    began = time.monotonic()
    calm = Site(tmp_path / "calm")
    assert disturb(calm.start, calm.lab.hosts, luck, 1, 0) == []
    longest = 0.7 * (time.monotonic() - began)
    state, changes = calm.state(), calm.changes()
    assert {name: set(counted.values()) for name, counted in changes.items()} == {name: {1} for name in changes}
    assert all(len(counted) > 10 for counted in changes.values()), changes
    assert all(any(change.startswith("systemctl ") for change in counted) for counted in changes.values()), changes

    kills: list[str] = []
    for number in itertools.count():
        if len(kills) == wanted:
            break  # a run that came to its end before its last kill is followed by another, on new hosts
        site = Site(tmp_path / f"run{number}")
        kills += disturb(site.start, site.lab.hosts, luck, longest, min(MOST_KILLS, wanted - len(kills)))
        if aside := site.bringup.release():
            assert set(aside) <= set(kills), (kills, site.log.read_text())
            site.changed()
        assert site.state() == state, (kills, site.log.read_text())
        assert site.changes() == changes, (kills, site.log.read_text())
        there = census(tmp_path)
        assert not [title for title in there["processes"] if "ansible-playbook" in title or title.startswith("ssh: ")]
        assert there["programs"] == [], "no engine and no step"
        assert site.changed() == [], "it has come to what was wanted"
        assert site.changes() == changes, "and a second run leaves it alone"
    print(f"{len(kills)} kills: {', '.join(kills)}; {time.monotonic() - began:.0f} s")
