"""Faults of hosts while agents join: each is named with its class, the others join, and what was mended joins in the next run."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from hostlab import faults
from hostlab.host import Host
from hostlab.lab import Init
from hostlab.waiting import until
from rke2_plays import VERSION, Site, lacks, play, said

from steps.contract.play import FailureKind, HostStatus
from steps.contract.stages.rke2 import PlayExpectation
from steps.contract.verdict import FailureClass
from steps.gates import rke2 as gate
from steps.probes import rke2 as probe

STORE, SLOW = "/var/lib/rancher/download", "/usr/local/bin/waiting-4"
OK, FAILED, UNREACHABLE = HostStatus.OK, HostStatus.FAILED, HostStatus.UNREACHABLE
CASES: tuple[tuple[str, Callable[[Host], object], HostStatus, FailureKind | None, FailureClass | None, dict[str, Any]], ...] = (
    ("healthy", lambda _: None, OK, None, None, {}),
    ("full disk", lambda host: faults.full_disk(host, STORE), FAILED, FailureKind.DISK_FULL, FailureClass.DEPENDENCY, {}),
    ("read-only root", Host.read_only, FAILED, FailureKind.READ_ONLY, FailureClass.HARDWARE, {}),
    (
        "cable cut while it joins",
        lambda host: faults.python_that_waits(host, 4),
        UNREACHABLE,
        FailureKind.NETWORK,
        FailureClass.DEPENDENCY,
        {"python": SLOW},
    ),
    ("wrong sudo", lambda _: None, FAILED, FailureKind.SUDO, FailureClass.PERMISSION, {"user": "guest"}),
    ("silent from start", Host.silence, UNREACHABLE, FailureKind.NETWORK, FailureClass.DEPENDENCY, {}),
)
CUT = 3


def test_a_fault_while_agents_join_is_named_and_keeps_nobody_else_out(up: Any, site: Site) -> None:
    lab = up(1 + len(CASES), Init.SYSTEMD)
    server, agents = lab.hosts[0], list(lab.hosts[1:])
    assert said(play(lab, site, "rke2_server", [server])) == []
    for (_, make, *_), host in zip(CASES, agents, strict=True):
        make(host)
    cable = threading.Thread(target=cut, args=(agents[CUT],))
    cable.start()
    reach = {host.name: case[-1] for case, host in zip(CASES, agents, strict=True)}
    result = play(lab, site, "rke2_agent", agents, [server], reach=reach)
    cable.join()

    seen = [(case[0], row.status, row.kind) for case, row in zip(CASES, result.hosts, strict=True)]
    assert seen == [case[:1] + case[2:4] for case in CASES], said(result)
    want = PlayExpectation(version=VERSION, service="rke2-agent", nodes=tuple(host.name for host in agents))
    verdict = gate.agents(probe.from_play(result.hosts), want)
    assert [row.failure_class for row in verdict.nodes] == [case[4] for case in CASES], verdict.reason

    full = agents[1]
    full.run("umount", STORE)
    agents[CUT].plug()
    mended = [full, agents[CUT]]
    again = play(lab, site, "rke2_agent", mended, [server])
    assert said(again) == []
    assert lacks(again, "agent") == ""


def cut(host: Host) -> None:
    """Pull the cable once a module runs on the host."""
    until(partial(faults.has_started, host), 60)
    host.unplug()
