"""One host: its folder, its namespaces, its process 1, and what a test may do to it.

A host has namespaces of its own for network, mounts, processes, host name, IPC and cgroups, an overlay over the shared Debian root,
and an SSH host key. What has no namespace is hidden or forbidden: sysctls outside of `net` are plain files, `/proc/swaps` is empty,
the boot id is the host's own, and no process may set the clock, load modules or make devices. So a host shows a setting as applied
where a real kernel needs more than a write, and reports time services as `unavailable`.
"""

import contextlib
import os
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from hostlab import debian, network

ENTER = Path(__file__).with_name("enter.sh")
NAMESPACES = ["--mount", "--pid", "--uts", "--ipc", "--cgroup"]
BOOT = 'while unshare "$@"; [ $? = 129 ]; do :; done'
"""Process 1 of a PID namespace that calls reboot is ended by SIGHUP: boot the host again."""

ANSWER_SECONDS = 40.0
"""systemd hosts need 0.3 s each on two cores; 100 of them were seen to need 24 s."""

RESOLV = "etc/resolv.conf"
RUN_SECONDS = 300.0
"""Longest time of one command in a host; packages that it installs need a minute on a busy machine."""


@dataclass(frozen=True)
class Host:
    """A host of the lab. `folder` holds its overlay and its log."""

    name: str
    address: str
    folder: Path

    @property
    def log(self) -> Path:
        """Return the file with the output of process 1."""
        return self.folder / "log"

    def run(self, *command: str, text: str = "") -> str:
        """Run a command inside the host, past SSH, and return what it printed; `text` is its standard input.

        `subprocess.TimeoutExpired` where it does not end: a host that goes down stops its processes before it kills them, and
        nsenter, which stops along with its command, is then never told to go on.
        """
        enter = ["nsenter", "--target", str(self.init()), "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd=/"]
        done = subprocess.run([*enter, *command], input=text, capture_output=True, text=True, check=True, timeout=RUN_SECONDS)
        return done.stdout

    def boot_id(self) -> str:
        """Id of the boot, read from outside: it may go down meanwhile; empty while it has no process 1."""
        try:
            return Path(f"/proc/{self.init()}/root/proc/sys/kernel/random/boot_id").read_text()
        except (RuntimeError, OSError):
            return ""

    def read_only(self) -> None:
        """Fault: the root file system turns read-only, as after a disk error; what journald has open would hinder it."""
        self.run("sh", "-c", "journalctl --relinquish-var; mount -o remount,ro /")

    def unplug(self) -> None:
        """Fault: the network cable is out."""
        network.link(self.name, "down")

    def plug(self) -> None:
        """The cable is in again."""
        network.link(self.name, "up")

    def silence(self) -> None:
        """Fault: nothing answers any more, as where the power is off behind a router."""
        self.run("ip", "route", "add", "blackhole", network.GATEWAY)

    def init(self) -> int:
        """Process 1 of the host, as this machine numbers it."""
        for pid in network.processes(self.name):
            with contextlib.suppress(OSError):  # it ended while we looked
                rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                if rows["NSpid"].split()[1:] == ["1"]:
                    return pid
        raise RuntimeError(f"{self.name} has no process 1: see {self.log}")


def prepare(host: Host, authorized_keys: str) -> str:
    """Write the host's own files into its overlay; returns its public host key."""
    for part in ("upper/etc/ssh/sshd_config.d", "work", "root"):
        (host.folder / part).mkdir(parents=True)
    etc = host.folder / "upper/etc"
    (etc / "hostname").write_text("unnamed\n")
    (etc / "hosts").write_text("127.0.0.1 localhost\n")
    (etc / "machine-id").write_text(uuid.uuid4().hex + "\n")
    (etc / "ssh/authorized_keys").write_text(authorized_keys)
    (etc / "ssh/sshd_config.d/hosts.conf").write_text(debian.SSHD)  # roots that debian builds have it, others not
    key = etc / "ssh/ssh_host_ed25519_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", str(key)], check=True)
    return " ".join(key.with_suffix(".pub").read_text().split()[:2])


def start(host: Host, lower: Path, init: str, cgroup: Path | None) -> None:
    """Start the host's process 1; `cgroup` is the leaf it joins first."""
    join = f"echo $$ > {cgroup}/cgroup.procs; " if cgroup else ""
    script = join + 'exec ip netns exec "$0" sh -c "$BOOT" sh "$@"'
    command = [
        "setsid",
        "--fork",
        "sh",
        "-c",
        script,
        network.namespace(host.name),
        *NAMESPACES,
        "--fork",
        "--kill-child",
        "sh",
        str(ENTER),
    ]
    if not (lower / RESOLV).is_symlink():
        # what mmdebstrap copied is this machine's, whose name server may be one on its loopback address, which RKE2 hands to no pod
        (host.folder / "upper" / RESOLV).write_text(f"nameserver {network.GATEWAY}\n")
    environment = os.environ | {"LOWER": str(lower), "FOLDER": str(host.folder), "INIT": init, "BOOT": BOOT}
    with host.log.open("ab") as log:
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)


def answers(host: Host, until: float) -> bool:
    """Wait until the host's SSH server greets; False at `until` (monotonic seconds)."""
    while time.monotonic() < until:
        try:
            with socket.create_connection((host.address, 22), 1) as connection:
                connection.settimeout(3)
                if connection.recv(4) == b"SSH-":
                    return True
        except OSError:
            time.sleep(0.02)
    return False
