"""Faults of hosts, each as it is met in the field; where this machine cannot have the real one, a stand-in that says so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hostlab.host import Host
from hostlab.lab import Lab
from hostlab.waiting import until

from steps.contract.host_play import FailureKind, HostStatus
from steps.contract.verdict import FailureClass

STARTED = "var/fault-started"
"""Path below the root where a Python that was started for a module leaves its mark."""
HOLD_SECONDS = 30.0
UPDATE = """#!/usr/bin/python3
import fcntl, subprocess, time
file = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
open("/run/held", "w").close()
while subprocess.run(["pgrep", "--full", "apt-get.* install"], stdout=subprocess.DEVNULL).returncode:
    time.sleep(0.1)
time.sleep(2)
"""


@dataclass(frozen=True)
class Case:
    """A fault: what makes it, how the play ends after how many tries, the class that the gate gives, how the host is reached."""

    name: str
    make: Callable[[Host], object]
    status: HostStatus = HostStatus.OK
    kind: FailureKind | None = None
    failure_class: FailureClass | None = None
    tries: int = 1
    reach: dict[str, Any] = field(default_factory=dict)


def of(cases: Sequence[Case], name: str) -> int:
    """The place of a case among all."""
    return next(number for number, case in enumerate(cases) if case.name == name)


def nothing(_host: Host) -> None:
    """A healthy host."""


def waiting(seconds: int) -> Callable[[Host], str]:
    """Return a function that gives a host a Python which waits so many seconds before it starts."""
    return lambda host: python_that_waits(host, seconds)


def python_that_waits(host: Host, seconds: int) -> str:
    """A Python that leaves a mark and starts after this long, as on a host under load or with a hung file system; its path."""
    return _program(
        host, f"waiting-{seconds}", f'case "$*" in "") ;; *) exec /usr/bin/python3 "$@";; esac; touch /{STARTED}; sleep {seconds}'
    )


def has_started(host: Host) -> bool:
    """Return True if the Python that waits was started on the host."""
    return (host.folder / "upper" / STARTED).exists()


def _program(host: Host, name: str, script: str) -> str:
    path = f"/usr/local/bin/{name}"
    _write(host, path, f'#!/bin/sh\n{script}\nexec /usr/bin/python3 "$@"\n')
    return path


def _write(host: Host, path: str, content: str) -> None:
    host.run("sh", "-c", f"cat > {path} && chmod 755 {path}", text=content)


def skewed_clock(host: Host, seconds: int) -> None:
    """A stand-in for a wrong clock, which is the whole machine's: Python on this host reads a time that is off."""
    _write(host, "/etc/python3.11/sitecustomize.py", f"import time\nreal = time.time\ntime.time = lambda: real() + {seconds}\n")


def broken_packages(host: Host) -> None:
    """The list of installed packages is damaged, as after a power cut, and one that the profile wants is not there."""
    host.run("dpkg", "--purge", "socat")
    host.run("sh", "-c", "echo 'Package: half\nStat' >> /var/lib/dpkg/status")


def packages_locked(host: Host) -> None:
    """Another process has dpkg's lock, as an update that goes on; it ends once an installation has waited for it for a moment."""
    host.run("dpkg", "--purge", "socat")
    _write(host, "/usr/local/bin/update", UPDATE)
    holding(host, "/usr/local/bin/update")


def holding(host: Host, *command: str) -> None:
    """Start a program on the host that goes on, and wait until it says by a file that it has what it holds."""
    host.run("sh", "-c", 'setsid "$@" > /dev/null 2>&1 &', "sh", *command)
    assert until(lambda: "held" in host.run("ls", "/run").split(), HOLD_SECONDS), command


def slow_link(host: Host) -> None:
    """Limit the host's outgoing traffic to 30 kB/s, as over a link that is congested or damaged."""
    host.run(*("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "240kbit", "burst", "4kb", "latency", "10s"))


def half_applied(host: Host) -> None:
    """Leave a host as a killed run does: a package only unpacked, a file cut short, and a temporary file beside its target."""
    host.run("dpkg", "--purge", "socat")
    host.run("sh", "-c", "dpkg --unpack /srv/packages/socat*.deb")
    host.run("sh", "-c", "echo '# Made by br' > /etc/sysctl.d/zz-bringup.conf; echo x > /etc/sysctl.d/.bringup-cut")
    host.run("sh", "-c", "mkdir -m 700 /etc/rancher; hostname half")


def full_disk(host: Host, folder: str = "/etc/sysctl.d") -> None:
    """A small file system where the profile's sysctls go, or other files, full to its last block."""
    host.run("mkdir", "-p", folder)
    host.run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder)
    host.run("sh", "-c", f"cat /dev/zero > {folder}/filled 2>&- || true")


def no_python(host: Host) -> None:
    """Python was never installed, or somebody has removed it."""
    host.run("sh", "-c", "rm /usr/bin/python3*")


def locked_out(host: Host) -> None:
    """The run's key is not among those that may log in."""
    host.run("sh", "-c", ": > /etc/ssh/authorized_keys")


def other_key(lab: Lab, host: Host) -> None:
    """The host shows another key than the one that is known: that of another host stands in known_hosts in its place."""
    lines = [line.split() for line in lab.known_hosts.read_text().splitlines()]
    other = next(key for address, _, key in lines if address != host.address)
    lab.known_hosts.write_text("".join(f"{at} {kind} {other if at == host.address else key}\n" for at, kind, key in lines))


def no_way_back(host: Host) -> None:
    """After its next boot nobody can log in: the SSH server does not start."""
    host.run("systemctl", "mask", "ssh.service")
