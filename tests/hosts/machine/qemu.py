"""A machine of its own under QEMU: its kernel, its boot loader, PCI bridges and IOMMU, reached by SSH at a port of this one.

Emulated, as no test may count on /dev/kvm. What it writes is gone with it.

Real are BIOS, GRUB, initramfs, kernel and modules, kernel command line, huge pages, swap, IOMMU, PCI configuration space, SELinux
with Debian's policy, firewalld with its rules, and both clocks. Processor and devices are QEMU's, and the time server at
127.0.0.1:123 is a stand-in. QEMU ends with the process that started it; its command line names the folder of its test, by which
`hostlab/census.py` counts it.
"""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from steps.nodeimage.netboot import parent_death
from tests.hosts.hostlab.waiting import until
from tests.hosts.machine import disk
from tests.hosts.machine.disk import Disk

QEMU = "qemu-system-x86_64"
MEMORY_MIB, PROCESSORS = 4096, 2
BEGUN = "GRUB loading."
PORTS = ("port1", "port2")
"""Root ports, each with one device behind it: bridges that have Access Control Services."""
INSTALL_SECONDS, BOOT_SECONDS, END_SECONDS = 600.0, 240.0, 10.0
SSH_SECONDS = 120
TOGETHER = ("-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-accel", "tcg,thread=multi", "-cpu", "max")


@dataclass(frozen=True)
class Machine:
    """A machine that was started."""

    disk: Disk
    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def known_hosts(self) -> Path:
        """Return the known_hosts file with the machine's host key."""
        return self.folder / "known_hosts"

    @property
    def console(self) -> str:
        """Return the output on the machine's serial line."""
        return (self.folder / "console").read_text(errors="replace")

    @property
    def boots(self) -> int:
        """Return how often the machine's boot loader has started."""
        return self.console.count(BEGUN)

    def run(self, command: str, text: str = "") -> str:
        """Run a line of shell as root, by SSH, and return what it printed; `text` is its standard input."""
        done = subprocess.run(self.words(command), input=text, capture_output=True, text=True, timeout=SSH_SECONDS)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def awaited(self) -> None:
        """Wait until its SSH server greets."""
        if not until(self.answers, BOOT_SECONDS, every=0.2):
            raise RuntimeError(f"the machine does not answer: {self.console[-2000:]}")

    def words(self, command: str) -> list[str]:
        """The command that does so."""
        options = ["-i", str(self.disk.key), "-p", str(self.port), "-o", f"UserKnownHostsFile={self.known_hosts}"]
        return ["ssh", "-F", "none", *options, "-o", "BatchMode=yes", "root@127.0.0.1", command]

    def answers(self) -> bool:
        """Return True if the machine's SSH server greets."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.settimeout(3)
            return connection.recv(4) == b"SSH-"
        return False


@contextlib.contextmanager
def started(kept: Disk, folder: Path, ahead: timedelta = timedelta()) -> Iterator[Machine]:
    """A machine with a disk like that one, once its SSH server greets; ended with the context. `ahead`: how much its clock is at
    first."""
    with powered(kept, folder, ahead) as machine:
        machine.awaited()
        yield machine


@contextlib.contextmanager
def powered(kept: Disk, folder: Path, ahead: timedelta = timedelta()) -> Iterator[Machine]:
    """Start a machine on a disk whose changes are discarded; yield it as soon as it has power, before its SSH server answers."""
    port, clock = _free_port(), f"{datetime.now(UTC) + ahead:%Y-%m-%dT%H:%M:%S}"
    words = [
        "-drive",
        f"if=none,id=disk,file={kept.image},format=raw,snapshot=on,cache=unsafe",
        "-rtc",
        f"base={clock}",
        *_board(port),
    ]
    machine = Machine(kept, folder, port, _start(folder, words))
    try:
        machine.known_hosts.write_text(f"[127.0.0.1]:{port} {kept.host_key}\n")
        yield machine
    finally:
        _end(machine.process)


def made(folder: Path) -> Disk:
    """The disk, GRUB installed by the machine itself."""

    def boot_once(image: Path, boot: Path) -> None:
        kernel, initrd = next(boot.glob("vmlinuz-*")), next(boot.glob("initrd.img-*"))
        words = ["-drive", f"if=none,id=disk,file={image},format=raw,cache=unsafe", "-no-reboot", *_board(_free_port())]
        words += ["-kernel", str(kernel), "-initrd", str(initrd)]
        process = _start(folder, [*words, "-append", "console=ttyS0 root=/dev/vda1 rw panic=-1 init=/usr/local/sbin/install-grub"])
        try:
            process.wait(INSTALL_SECONDS)
        finally:
            _end(process)
        said = (folder / "console").read_text(errors="replace")
        if "\ninstalled" not in said:
            raise RuntimeError(f"GRUB was not installed: {said[-2000:]}")

    return disk.disk(boot_once)


def _board(port: int) -> list[str]:
    """Return QEMU's options for the board: an IOMMU, the disk, and behind bridges a network card and a random number generator."""
    ports = [
        word for index, name in enumerate(PORTS) for word in ("-device", f"pcie-root-port,id={name},chassis={index},slot={index}")
    ]
    return [
        *("-machine", "q35,graphics=off", "-m", str(MEMORY_MIB), "-smp", str(PROCESSORS), "-device", "intel-iommu"),
        *ports,
        *("-device", "virtio-blk-pci,drive=disk"),
        *(
            "-netdev",
            f"user,id=wire,hostfwd=tcp:127.0.0.1:{port}-:22",
            "-device",
            f"virtio-net-pci,romfile=,netdev=wire,bus={PORTS[0]}",
        ),
        *("-device", f"virtio-rng-pci,bus={PORTS[1]}"),
    ]


def _start(folder: Path, words: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid()), QEMU, *TOGETHER, *words]
    with (folder / "qemu.err").open("wb") as err:
        return subprocess.Popen(
            [*command, "-serial", f"file:{folder / 'console'}"], stdin=subprocess.DEVNULL, stdout=err, stderr=err
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
