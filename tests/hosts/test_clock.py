"""Clocks of hosts as a real chrony measures them: one that its server keeps, and one that is off.

No host may set the clock, which is the whole machine's: chronyd measures and leaves it as it is (`-x`).
"""

from typing import Any

import pytest
import time_server
from hostlab import network
from hostlab.host import Host
from hostlab.lab import Init, Lab
from hostlab.profile import judged, reached, request, variables

from steps.clients.ansible import playing
from steps.contract.host_play import PlayResult
from steps.contract.verdict import FailureClass, Verdict
from steps.stages.os_prep import probe
from steps.stages.os_prep.contract import NodeClock

pytestmark = pytest.mark.sampled("preparing hosts")

MEASURES = """
mkdir -p /etc/systemd/system/chrony.service.d
printf '[Unit]\\nConditionCapability=\\n' > /etc/systemd/system/chrony.service.d/90-measures.conf
echo 'DAEMON_OPTS="-x"' > /etc/default/chrony
systemctl daemon-reload
systemctl start chrony
"""
SERVES = f"""{MEASURES}
printf 'local stratum 5\\nallow 10.77.0.0/16\\n' > /etc/chrony/chrony.conf
systemctl restart chrony
"""
SLEWS = f"""{MEASURES}
printf 'server {network.GATEWAY} iburst\\n' > /etc/chrony/chrony.conf
systemctl restart chrony
"""
"""A site's own settings, by which a clock is never stepped: it stays off for as long as it takes to slew."""
OFF_SECONDS = 37.0
FOUND_SECONDS = 15
"""Until chrony has found its server, which takes it 8 at most; nobody waits for a clock that is this far off to come near."""


def test_a_clock_that_is_kept_is_told_from_one_that_is_off_by_what_chrony_measures(up: Any) -> None:
    lab = up(3, Init.SYSTEMD, prepared=True)
    server, kept, off = lab.hosts
    server.run("sh", "-c", SERVES)
    kept.run("sh", "-c", MEASURES)
    good = measured(lab, kept, time_servers=[server.address])
    clock = clock_of(good)
    assert (clock.service, clock.synchronized) == ("chronyd", True)
    assert clock.offset_seconds is not None, "measured"
    assert abs(clock.offset_seconds) < 1.0
    assert said(good).is_pass, said(good).reason

    with time_server.serving(network.GATEWAY, off=OFF_SECONDS):
        off.run("sh", "-c", SLEWS)
        bad = measured(lab, off, FOUND_SECONDS)
    clock = clock_of(bad)
    assert clock.offset_seconds is not None, "measured"
    assert abs(abs(clock.offset_seconds) - OFF_SECONDS) < 1.0
    assert said(bad).failure_class is FailureClass.DEPENDENCY
    assert "the clock is off by 3" in said(bad).reason


def measured(lab: Lab, host: Host, seconds: int = 60, **changes: Any) -> PlayResult:
    """The play on one host, with these keys of the profile; the clock is waited for as long."""
    given = variables(**changes) | {"os_prep_clock_seconds": seconds}
    return playing.play(request(lab, reached(lab, host), variables=given))


def clock_of(result: PlayResult) -> NodeClock:
    """Return the clock of the play's one host, as the module measured it."""
    facts = probe.from_play(result.hosts).nodes[0].facts
    assert facts is not None, result
    return facts.clock


def said(result: PlayResult) -> Verdict:
    """Judge a play with the gate of OS prep, the clock included."""
    return judged(result, tolerate=(), clock_synchronized=True)
