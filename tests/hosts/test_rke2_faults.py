"""Faults of hosts while agents join: each is named with its class, the others join, and what was mended joins in the next run."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hostlab import faults
from hostlab.faults import Case, nothing, waiting
from hostlab.host import Host
from hostlab.lab import Init
from hostlab.waiting import until
from rke2_plays import VERSION, Site, lacks, play, said, tell

from steps.contract.host_play import FailureKind, HostStatus
from steps.contract.verdict import FailureClass
from steps.stages.rke2 import gate, probe
from steps.stages.rke2.contract import PlayExpectation

pytestmark = pytest.mark.sampled("rke2 on hosts")

STORE, SLOW, LONG = "/var/lib/rancher/download", "/usr/local/bin/waiting-4", "/usr/local/bin/waiting-600"
OK, FAILED, UNREACHABLE = HostStatus.OK, HostStatus.FAILED, HostStatus.UNREACHABLE
LOOK_SECONDS = 25
"""Longest time of the first look at a host: what hangs there hangs no longer."""


CASES = (
    Case("healthy", nothing),
    Case("full disk", lambda host: faults.full_disk(host, STORE), FAILED, FailureKind.DISK_FULL, FailureClass.DEPENDENCY),
    Case("read-only root", Host.read_only, FAILED, FailureKind.READ_ONLY, FailureClass.HARDWARE),
    Case("cable cut while it joins", waiting(4), UNREACHABLE, FailureKind.NETWORK, FailureClass.DEPENDENCY, reach={"python": SLOW}),
    Case("wrong sudo", nothing, FAILED, FailureKind.SUDO, FailureClass.PERMISSION, reach={"user": "guest"}),
    Case("silent from start", Host.silence, UNREACHABLE, FailureKind.NETWORK, FailureClass.DEPENDENCY),
    Case("stalled host", waiting(600), FAILED, FailureKind.TIMEOUT, FailureClass.RUNTIME, reach={"python": LONG}),
    Case("wrong key", faults.locked_out, UNREACHABLE, FailureKind.SSH_AUTH, FailureClass.PERMISSION),
    Case("host key changed", nothing, UNREACHABLE, FailureKind.HOST_KEY, FailureClass.PERMISSION),
    Case("python missing", faults.no_python, FAILED, FailureKind.PYTHON_MISSING, FailureClass.DEPENDENCY),
)
of = partial(faults.of, CASES)


def test_a_fault_while_agents_join_is_named_and_keeps_nobody_else_out(up: Any, site: Site) -> None:
    lab = up(1 + len(CASES), Init.SYSTEMD)
    server, agents = lab.hosts[0], list(lab.hosts[1:])
    assert said(play(lab, site, "rke2_server", [server])) == []
    for case, host in zip(CASES, agents, strict=True):
        case.make(host)
    faults.other_key(lab, agents[of("host key changed")])
    full, unplugged = agents[of("full disk")], agents[of("cable cut while it joins")]
    cable = threading.Thread(target=cut, args=(unplugged,))
    cable.start()
    reach = {host.name: case.reach for case, host in zip(CASES, agents, strict=True)}
    result = play(lab, site, "rke2_agent", agents, [server], reach=reach, rke2_look_seconds=LOOK_SECONDS)
    cable.join()

    seen = [(case.name, row.status, row.kind) for case, row in zip(CASES, result.hosts, strict=True)]
    assert seen == [(case.name, case.status, case.kind) for case in CASES], said(result)
    want = PlayExpectation(version=VERSION, service="rke2-agent", nodes=tuple(host.name for host in agents))
    verdict = gate.agents(probe.from_play(result.hosts), want)
    assert [row.failure_class for row in verdict.nodes] == [case.failure_class for case in CASES], verdict.reason

    full.run("umount", STORE)
    unplugged.plug()
    mended = [full, unplugged]
    again = play(lab, site, "rke2_agent", mended, [server])
    assert said(again) == []
    assert lacks(again, "agent") == ""

    faults.python_that_waits(server, 600)
    hung = play(lab, site, "rke2_agent", mended, [server], reach={server.name: {"python": LONG}}, rke2_look_seconds=LOOK_SECONDS)
    assert said(hung) == [], "nor does a server that hangs, the only one to act for others"
    assert lacks(hung, "agent") == ""


def test_a_batch_that_is_away_as_a_whole_is_named_and_the_others_have_their_turn(up: Any, site: Site) -> None:
    lab = up(4, Init.SYSTEMD)
    server, unplugged, *others = lab.hosts
    assert said(play(lab, site, "rke2_server", [server])) == []
    tell(unplugged, slow=20)
    starts = unplugged.folder / "upper/var/log/rke2-stand-in.log"
    cable = threading.Thread(target=cut, args=(unplugged, starts.exists))
    cable.start()
    result = play(lab, site, "rke2_agent", [unplugged, *others], [server], rke2_join_batch=1)
    cable.join()

    assert [(row.status, row.kind) for row in result.hosts] == [(UNREACHABLE, FailureKind.NETWORK), (OK, None), (OK, None)], said(
        result
    )
    want = PlayExpectation(version=VERSION, service="rke2-agent", nodes=tuple(host.name for host in others))
    verdict = gate.agents(probe.from_play(result.hosts), want)
    assert verdict.is_pass, verdict.reason


def cut(host: Host, is_time: Callable[[], bool] | None = None) -> None:
    """Pull the cable once it is time, or a module runs on the host."""
    until(is_time or partial(faults.has_started, host), 60)
    host.unplug()
