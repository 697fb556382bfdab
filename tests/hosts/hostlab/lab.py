"""N SSH hosts up, and all that they are made of down again, also after a crash."""

import contextlib
import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hostlab import debian, network
from hostlab import host as hosts
from hostlab.host import Host

INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_NEEDED = 8192
"""128, a usual default, is used up by about 15 systemd hosts."""

GONE_SECONDS = 20.0


class Init(StrEnum):
    """Process 1 of a host: `sshd` is enough for plays without services and comes up at once."""

    SSHD = "sshd"
    SYSTEMD = "systemd"


@dataclass(frozen=True)
class Lab:
    """The running hosts. `key` logs in as root, `admin` (who may use sudo) and `guest` (who may not)."""

    folder: Path
    hosts: tuple[Host, ...]

    @property
    def key(self) -> Path:
        """The private SSH key that all hosts accept."""
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The host keys of all hosts, one line each."""
        return self.folder / "known_hosts"

    def inventory(self) -> str:
        """An Ansible inventory in JSON, which is YAML too."""
        variables = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.known_hosts} -o StrictHostKeyChecking=yes",
        }
        rows = {host.name: {"ansible_host": host.address} for host in self.hosts}
        return json.dumps({"all": {"hosts": rows, "vars": variables}}, indent=2)


def folder() -> Path:
    """`$BRINGUP_LAB`, else a fixed folder outside the tree, so that `down` finds what another process made."""
    return Path(os.environ.get("BRINGUP_LAB") or "/var/tmp/bringup-hosts")


def current() -> Lab:
    """The hosts that are up now."""
    names = network.ours()
    return Lab(folder(), tuple(_host(folder(), number, name) for number, name in enumerate(names)))


def up(count: int, init: Init = Init.SSHD, *, prepared: bool = False, lower: Path | None = None) -> Lab:
    """Make `count` hosts and wait until each answers on port 22; `prepared` ones have the profile's packages already. `lower` is
    another root than the usual one.

    Raises RuntimeError if hosts are up or some do not come.
    """
    place = folder()
    if network.ours() or os.path.ismount(place):
        raise RuntimeError(f"hosts are up already in {place}: run `python tests/hosts/hosts.py down` first")
    lower = lower or (debian.prepared() if prepared else debian.root())
    place.mkdir(parents=True, exist_ok=True)
    # a tmpfs: overlayfs cannot have another overlay (a container's root) above it, and dpkg's syncs cost nothing
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place), "-o", "mode=700"], check=True)
    names = [f"n{number:03d}" for number in range(count)]
    lab = Lab(place, tuple(_host(place, number, name) for number, name in enumerate(names)))
    network.up(names)
    _keys(lab)
    _start(lab, lower, init)
    return lab


def down() -> None:
    """Remove every host, namespace, mount, cgroup and bridge that `up` made; nothing to do is fine."""
    names = network.ours()
    _kill(names)
    network.down(names)
    place = folder()
    cgroups = place / "cgroup"
    if os.path.ismount(cgroups):
        _remove_cgroups(cgroups)
        subprocess.run(["umount", str(cgroups)], check=True)
    kept = place / "inotify"
    if kept.exists():
        INOTIFY.write_text(kept.read_text())
    if os.path.ismount(place):
        subprocess.run(["umount", "--lazy", str(place)], check=True)
    if place.exists():
        place.rmdir()


def _host(place: Path, number: int, name: str) -> Host:
    return Host(name, network.address(number), place / name)


def _keys(lab: Lab) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hosts", "-f", str(lab.key)], check=True)
    public = lab.key.with_suffix(".pub").read_text()
    with ThreadPoolExecutor(4) as pool:
        keys = list(pool.map(lambda host: hosts.prepare(host, public), lab.hosts))
    lab.known_hosts.write_text("".join(f"{host.address} {key}\n" for host, key in zip(lab.hosts, keys, strict=True)))


def _start(lab: Lab, lower: Path, init: Init) -> None:
    cgroups = _cgroups(lab) if init is Init.SYSTEMD else None
    for host in lab.hosts:
        hosts.start(host, lower, init.value, cgroups / _leaf(host) if cgroups else None)
    until = time.monotonic() + hosts.ANSWER_SECONDS
    with ThreadPoolExecutor(32) as pool:
        answered = list(pool.map(lambda host: hosts.answers(host, until), lab.hosts))
    silent = [host for host, ok in zip(lab.hosts, answered, strict=True) if not ok]
    if silent:
        raise RuntimeError(f"{len(silent)} hosts do not answer, first {silent[0].name}: {silent[0].log.read_text()[-400:]}")


def _leaf(host: Host) -> str:
    """The name of a host's cgroup, which no host of another lab has."""
    return f"{host.folder.parent.name}-{host.name}"


def _cgroups(lab: Lab) -> Path:
    """One cgroup v2 leaf for each host; also lets this machine have enough inotify instances for N systemds."""
    mounted = lab.folder / "cgroup"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", str(mounted)], check=True)
    for host in lab.hosts:
        (mounted / _leaf(host)).mkdir(exist_ok=True)
    before = INOTIFY.read_text()
    if allow_inotify():
        (lab.folder / "inotify").write_text(before)
    return mounted


def allow_inotify() -> bool:
    """Let this machine have inotify instances for many hosts with systemd; False where it has them already.

    Labs beside each other share the setting: `hosts.py install` makes it before, so that none of them takes it back.
    """
    if int(INOTIFY.read_text()) >= INOTIFY_NEEDED:
        return False
    INOTIFY.write_text(str(INOTIFY_NEEDED))
    return True


def _kill(names: list[str]) -> None:
    until = time.monotonic() + GONE_SECONDS
    for name in names:
        while pids := network.processes(name):
            if time.monotonic() > until:
                raise RuntimeError(f"{name}: processes {pids} do not end")
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def _remove_cgroups(mounted: Path) -> None:
    """Leaves can be removed once the kernel has let go of their last process."""
    until = time.monotonic() + GONE_SECONDS
    while time.monotonic() < until:
        left = [Path(path) for top in mounted.glob(f"{mounted.parent.name}-n*") for path, _, _ in os.walk(top, topdown=False)]
        if not left:
            return
        for path in left:
            try:
                path.rmdir()
            except OSError:
                time.sleep(0.01)
