"""Clocks of hosts as a real chrony measures them: one that its server keeps, and one that is off.

No host may set the clock, which is the whole machine's: chronyd measures and leaves it as it is (`-x`).
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hostlab import network
from hostlab.host import Host
from hostlab.lab import Init, Lab
from hostlab.profile import judged, reached, request, variables

from steps.clients.ansible import playing
from steps.contract.play import PlayResult
from steps.contract.stages.os_prep import Clock
from steps.contract.verdict import FailureClass, Verdict
from steps.probes import os_prep as probe

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
NTP_EPOCH = 2208988800
OFF_SECONDS = 37.0


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

    with wrong_time(OFF_SECONDS):
        off.run("sh", "-c", SLEWS)
        bad = measured(lab, off)
    clock = clock_of(bad)
    assert clock.offset_seconds is not None, "measured"
    assert abs(abs(clock.offset_seconds) - OFF_SECONDS) < 1.0
    assert said(bad).failure_class is FailureClass.DEPENDENCY
    assert "the clock is off by 3" in said(bad).reason


def measured(lab: Lab, host: Host, **changes: Any) -> PlayResult:
    """The play on one host, with these keys of the profile."""
    given = variables(**changes) | {"os_prep_clock_seconds": 60}
    return playing.play(request(lab, reached(lab, host), variables=given))


def clock_of(result: PlayResult) -> Clock:
    """What the module read of the clock of the play's one host."""
    facts = probe.from_play(result.hosts).nodes[0].facts
    assert facts is not None, result
    return facts.clock


def said(result: PlayResult) -> Verdict:
    """What the gate says, of the clock too."""
    return judged(result, tolerate=(), clock_synchronized=True)


@contextmanager
def wrong_time(off: float) -> Iterator[None]:
    """A stand-in for an NTP server whose clock is off by so many seconds (RFC 5905), at the gateway while the context lasts."""
    with socket.socket(type=socket.SOCK_DGRAM) as port:
        port.bind((network.GATEWAY, 123))
        ended = threading.Event()
        port.settimeout(0.05)

        def answer() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    asked, sender = port.recvfrom(512)
                    now = struct.pack("!II", int(time.time() + off) + NTP_EPOCH, int((time.time() + off) % 1 * 2**32))
                    head = struct.pack("!BBbbII4s", 0x24, 1, 6, -20, 0, 1, b"LOCL")
                    port.sendto(head + now + asked[40:48] + now + now, sender)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
