"""Faults of hosts with systemd, side by side in one play: each is named with its class, ends in its time, and holds up nobody."""

import threading
from functools import partial
from typing import Any

from hostlab import faults, profile
from hostlab.faults import Case, nothing, waiting
from hostlab.host import Host
from hostlab.lab import Init, Lab
from hostlab.waiting import until

from steps.clients.ansible import playing
from steps.contract.host_play import FailureKind, HostStatus, PlayEvent, PlayHost, PlayResult
from steps.contract.verdict import FailureClass, Status
from steps.stages.os_prep import probe
from steps.stages.os_prep.contract import ItemStatus

OK, FAILED, UNREACHABLE = HostStatus.OK, HostStatus.FAILED, HostStatus.UNREACHABLE
HOST_SECONDS, REBOOT_SECONDS, START_SECONDS = 40, 15, 60
"""Longest times of the module and of a reboot on one host in this play, and until a host is asked to do anything."""


def reboots(host: Host) -> None:
    """A package asks for a reboot."""
    host.run("touch", "/run/reboot-required")


def lost(host: Host) -> None:
    """Make a host ask for a reboot from which it does not come back."""
    reboots(host)
    faults.no_way_back(host)


SLOW, LONG = "/usr/local/bin/waiting-3", "/usr/local/bin/waiting-600"
CUT = "/usr/local/bin/waiting-8"
CASES = (
    Case("healthy", nothing),
    Case("sudo allowed", nothing, reach={"user": "admin"}),
    Case("slow host", waiting(3), reach={"python": SLOW}),
    Case("slow link", faults.slow_link),
    Case("half-applied previous run", faults.half_applied),
    Case("package lock that goes", faults.packages_locked),
    Case("cable that comes back", waiting(8), tries=2, reach={"python": CUT}),
    Case("cable cut mid-play", waiting(8), UNREACHABLE, FailureKind.NETWORK, FailureClass.DEPENDENCY, 2, {"python": CUT}),
    Case("silent from start", Host.silence, UNREACHABLE, FailureKind.NETWORK, FailureClass.DEPENDENCY, 2),
    Case("stalled host", waiting(600), FAILED, FailureKind.TIMEOUT, FailureClass.RUNTIME, 1, {"python": LONG}),
    Case("wrong key", faults.locked_out, UNREACHABLE, FailureKind.SSH_AUTH, FailureClass.PERMISSION),
    Case("wrong sudo", nothing, FAILED, FailureKind.SUDO, FailureClass.PERMISSION, 1, {"user": "guest"}),
    Case("host key changed", nothing, UNREACHABLE, FailureKind.HOST_KEY, FailureClass.PERMISSION),
    Case("python missing", faults.no_python, FAILED, FailureKind.PYTHON_MISSING, FailureClass.DEPENDENCY),
    Case("python elsewhere", nothing, FAILED, FailureKind.PYTHON_MISSING, FailureClass.DEPENDENCY, 1, {"python": "/opt/python"}),
    Case("full disk", faults.full_disk, FAILED, FailureKind.DISK_FULL, FailureClass.DEPENDENCY),
    Case("read-only root", Host.read_only, FAILED, FailureKind.READ_ONLY, FailureClass.HARDWARE),
    Case("broken package manager", faults.broken_packages, FAILED, FailureKind.PACKAGE_MANAGER, FailureClass.DEPENDENCY),
    Case("reboot that comes back", reboots),
    Case("reboot that does not", lost, FAILED, FailureKind.REBOOT, FailureClass.HARDWARE),
    Case("clock skew", lambda host: faults.skewed_clock(host, 3600), failure_class=FailureClass.DEPENDENCY),
)
of = partial(faults.of, CASES)


class Cables:
    """Pulls two cables once their hosts are in the middle of the module, and plugs one in again when it was missed."""

    def __init__(self, lab: Lab) -> None:
        self.cut, self.back = lab.hosts[of("cable cut mid-play")], lab.hosts[of("cable that comes back")]
        self.thread = threading.Thread(target=self._pull)
        self.begins: dict[str, float] = {}
        self.ends: dict[str, float] = {}

    def _pull(self) -> None:
        plugged = [self.cut, self.back]
        while plugged:
            until(lambda: any(map(faults.has_started, plugged)), START_SECONDS)
            first = next(filter(faults.has_started, plugged), plugged[0])
            first.unplug()
            plugged.remove(first)

    def hear(self, event: PlayEvent) -> None:
        """Events of the play, as they come."""
        if event.event == "runner_on_unreachable" and event.host == self.back.name:
            self.back.plug()
        if event.host and event.event == "runner_on_start":
            self.begins.setdefault(event.host, event.time)
        elif event.host:
            self.ends[event.host] = event.time


def played(lab: Lab, **words: Any) -> tuple[PlayResult, Cables]:
    for case, host in zip(CASES, lab.hosts, strict=True):
        case.make(host)
    faults.other_key(lab, lab.hosts[of("host key changed")])
    hosts: tuple[PlayHost, ...] = tuple(
        profile.reached(lab, host, **case.reach) for case, host in zip(CASES, lab.hosts, strict=True)
    )
    variables = profile.variables() | {
        "os_prep_timeout": HOST_SECONDS,
        "os_prep_reboot": True,
        "os_prep_reboot_seconds": REBOOT_SECONDS,
    }
    cables = Cables(lab)
    cables.thread.start()
    result = playing.play(profile.request(lab, *hosts, variables=variables), on_event=cables.hear)
    cables.thread.join()
    return result, cables


def boots(lab: Lab) -> list[str]:
    """The boot id of every host."""
    return [host.boot_id() for host in lab.hosts]


def test_every_fault_is_named_with_its_class_while_the_others_go_on(up: Any) -> None:
    lab = up(len(CASES), Init.SYSTEMD, prepared=True)
    booted = boots(lab)

    result, cables = played(lab)

    seen = [(case.name, row.status, row.kind, row.tries) for case, row in zip(CASES, result.hosts, strict=True)]
    assert seen == [(case.name, case.status, case.kind, case.tries) for case in CASES], [row.message for row in result.hosts]
    verdict = profile.judged(result)
    classes = {row.node: row.failure_class for row in verdict.nodes if row.status is not Status.PASS}
    wanted = {host.name: case.failure_class for case, host in zip(CASES, lab.hosts, strict=True) if case.failure_class}
    assert classes == wanted, verdict.reason
    tasks = (profile.CHANGE, "Fail the node", "Reboot the node")
    assert all(row.task.startswith(tasks) for row in result.hosts if row.kind), [row.task for row in result.hosts]
    stalled, healthy = (lab.hosts[of(name)].name for name in ("stalled host", "healthy"))
    assert cables.ends[stalled] - cables.begins[stalled] < 2 * HOST_SECONDS, "a host that hangs is given up in its time"
    assert cables.ends[healthy] < cables.ends[stalled], "nobody waits for it"
    healed = lab.hosts[of("half-applied previous run")]
    assert healed.run("dpkg-query", "--show", "--showformat=${Status}", "socat") == "install ok installed"
    assert healed.run("sh", "-c", "ls -a /etc/sysctl.d | grep -c bringup; hostname").split() == ["1", healed.name]
    again = boots(lab)
    changed = {case.name for case, old, new in zip(CASES, booted, again, strict=True) if old != new}
    assert changed == {"reboot that comes back", "reboot that does not"}
    assert "did not come back" in verdict.nodes[of("reboot that does not")].next_step
    full = probe.from_play(result.hosts).nodes[of("full disk")]
    bad = [item.name for item in full.items if item.status is ItemStatus.FAILED]
    assert bad == ["file /etc/sysctl.d/zz-bringup.conf"], "its other items were changed"
