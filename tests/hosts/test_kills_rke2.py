"""The engine or an SSH session is killed while RKE2 is installed; going on ends as without, and no change is made twice.

The hosts count themselves: the stand-in for RKE2 writes down each of its starts, an audit hook of Python every file put in place.
"""

import contextlib
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nodes_stand_in
import pytest
from cluster_site import NEWER, OLDER, Site
from hostlab import lab
from hostlab.census import census
from hostlab.lab import Init, Lab
from killing import ROUNDS, chance, disturb

from workflows.plan.compiler import compile_plan

pytestmark = pytest.mark.sampled("kills")

FILES_LOG, STARTS_LOG = "/var/log/changes", "/var/log/rke2-stand-in.log"
PLACES = ("/etc/rancher/", "/usr/local/", "/var/lib/rancher/rke2/")
AUDIT = f"""
import os, sys
def hook(event, arguments):
    if event == "os.rename" and str(arguments[1]).startswith({PLACES}) and "__pycache__" not in str(arguments[1]):
        handle = os.open("{FILES_LOG}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, (str(arguments[1]) + "\\n").encode())
        os.close(handle)
sys.addaudithook(hook)
"""
UNFINISHED = """
find /etc /usr/local /var/lib/rancher -xdev -name '.bringup-*' -o -xdev -name installing
ls -A /var/lib/rancher | grep -vxE 'rke2|download' || true
ls -A /var/lib | grep -x .rke2-reset-begun || true
"""
"""Files that were not put in place, and marks of what is still to be done."""

AGENTS = "n[001-002]"
PROGRAM, CONFIGURATION = "/usr/local/bin/rke2", "/etc/rancher/rke2/config.yaml"
SIMULATOR = "workflows.rehearsal"
MOST_SECONDS = 8.0
"""Between two kills: with four of them most fall into the plays. Half of it in each further round."""


@dataclass(frozen=True)
class Phase:
    """A command, the release of its spec, how often it is disturbed, and what it changes on each host, exactly once."""

    command: tuple[str, ...]
    version: str
    kills: int
    changes: tuple[str, ...] = ()


INSTALL = Phase(("run", "cluster.yaml", "--only", "rke2"), OLDER, 2, (PROGRAM, CONFIGURATION, f"start @KIND@ {OLDER}"))
UPGRADE = Phase(("upgrade", "cluster.yaml"), NEWER, 10, (PROGRAM, f"start @KIND@ {NEWER}"))
RESET = Phase(("reset", "cluster.yaml", "--yes"), NEWER, 6)
SHORT, WHOLE = (INSTALL,), (replace(INSTALL, kills=14), UPGRADE, RESET)


class Cluster:
    """A server and two agents as new, and runs that bring them up."""

    def __init__(self, made: Lab, folder: Path, source: str) -> None:
        folder.mkdir()
        self.site = Site(made, folder, source)
        self.hosts = made.hosts
        self.log = folder / "said"
        for host in self.hosts:
            host.run("sh", "-c", "cat > /etc/python3.11/sitecustomize.py", text=AUDIT)

    @contextlib.contextmanager
    def played(self) -> Iterator[None]:
        """Nodes and pods are played while the context lasts."""
        with nodes_stand_in.played(self.site.lab, compile_plan(self.site.write(AGENTS)), self.site.folder / "played"):
            yield

    def command(self, phase: Phase) -> Callable[[], subprocess.Popen[str]]:
        """Return a function that starts the phase's command, or resumes its run if one was begun."""
        bringup = self.site.bringup
        before = set(bringup.home.glob("store/runs/*"))
        self.site.write(AGENTS, phase.version)

        def start() -> subprocess.Popen[str]:
            begun = set(bringup.home.glob("store/runs/*")) - before
            return bringup.start(*(("resume",) if begun else phase.command), log=self.log)

        return start

    def changes(self) -> dict[str, Counter[str]]:
        """Host → how often each file was put in place, and RKE2 was started in each release."""
        read = f"cat {FILES_LOG} {STARTS_LOG} 2>&- || true"
        return {host.name: Counter(host.run("sh", "-c", read).splitlines()) for host in self.hosts}

    def unfinished(self) -> dict[str, list[str]]:
        """Host → what a run has left there for the next one."""
        found = {host.name: host.run("sh", "-c", UNFINISHED).splitlines() for host in self.hosts}
        return {name: paths for name, paths in found.items() if paths}


@pytest.mark.parametrize("phases", [SHORT, pytest.param(WHOLE, marks=pytest.mark.long)], ids=["short", "whole"])
def test_killed_while_hosts_join_it_goes_on_to_the_wanted_state_with_each_change_made_once(
    up: Any, tmp_path: Path, source: str, phases: tuple[Phase, ...]
) -> None:
    luck, began, killed = chance(), time.monotonic(), Counter[Phase]()
    said: list[str] = []
    for number in range(ROUNDS):
        if all(killed[phase] == phase.kills for phase in phases):
            break
        lab.down()
        cluster = Cluster(up(3, Init.SYSTEMD, prepared=True), tmp_path / f"round{number}", source)
        with cluster.played():
            for phase in phases:
                kills = disturbed(cluster, phase, luck, MOST_SECONDS / 2**number, phase.kills - killed[phase])
                killed[phase] += len(kills)
                said += kills
    print(f"{len(said)} kills: {', '.join(said)}; {time.monotonic() - began:.0f} s")
    assert {phase.command: killed[phase] for phase in phases} == {phase.command: phase.kills for phase in phases}


def disturbed(cluster: Cluster, phase: Phase, luck: random.Random, longest: float, most: int) -> list[str]:
    """One phase with at most so many kills on its way; which they were. What it makes of the hosts is as without them."""
    before = cluster.changes()
    try:
        kills = disturb(cluster.command(phase), cluster.hosts, luck, longest, most)
    except AssertionError:
        print(cluster.log.read_text()[-6000:])
        raise
    said = (kills, cluster.log.read_text())
    if aside := cluster.site.bringup.release():
        assert set(aside) <= set(kills), said
        cluster.site.passes(*phase.command)
    after = cluster.changes()
    for host in cluster.hosts:
        kind = "server" if host is cluster.hosts[0] else "agent"
        made = after[host.name] - before[host.name]
        assert set(made.values()) <= {1}, (made, said)
        assert {change.replace("@KIND@", kind) for change in phase.changes} <= set(made), said
    assert cluster.unfinished() == {}, said
    there = census(cluster.site.folder)
    assert not [title for title in there["processes"] if "ansible-playbook" in title or title.startswith("ssh: ")]
    assert not [title for title in there["programs"] if SIMULATOR not in title], "no engine and no step"
    assert cluster.site.passes(*phase.command)[1] == [], "it has come to what was wanted"
    assert cluster.changes() == after, "and a second run leaves it alone"
    return kills
