"""One test machine: a QEMU process whose firmware boots by PXE from its network card."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from steps import timeouts
from steps.errors import BadTask
from steps.nodeimage.contract.boot_tests import BootedMachine, Firmware
from steps.nodeimage.netboot import parent_death

QEMU = "qemu-system-x86_64"
GATEWAY = "10.0.2.2"
"""Address at which a test machine reaches this host's 127.0.0.1, in QEMU's user-mode network with its DHCP and TFTP."""
MAX_CONSOLE = 2_000_000
"""Bytes of a serial console that are kept; a whole boot has 60 kB."""

PROCESSOR = "max,erms=off,fsrm=off,la57=off"
"""CPU model: all that QEMU can emulate, because programs built for x86-64-v2 or v3 die on its default of 2003.

Left out are fast string moves, which kernels would prefer and which are emulated byte by byte, and page tables of five levels: a
boot takes a fifth less without them.
"""
_CODE = ("OVMF_CODE_4M.fd", "OVMF_CODE.fd")
OVMF = Path("/usr/share/OVMF")
"""Folder of the UEFI firmware for QEMU, as Debian and Ubuntu package it."""
_CORES_OF_TWO_MACHINES = 4
_TERMINATED = "terminating on signal"
"""Message of QEMU when a signal told it to end; its exit code is 0 then."""
_PACKAGES = "install QEMU for x86, its iPXE ROMs and OVMF (Debian: qemu-system-x86 ipxe-qemu ovmf)"


class Hardware(Struct, frozen=True, kw_only=True):
    """Settings of a test machine that tests and faults change.

    `card` is the model of the network card, `clock` the start time (empty: the right one), `tap` a tap device (empty: user-mode
    network).
    """

    card: str = "virtio-net-pci"
    clock: str = ""
    tap: str = ""


class Running:
    """Started test machine: its QEMU process, and the file with its console."""

    def __init__(self, machine: BootedMachine, process: subprocess.Popen[bytes], console: Path) -> None:
        self.machine = machine
        self._process = process
        self._console = console

    @property
    def ended(self) -> bool:
        """True if the machine has stopped by itself."""
        return self._process.poll() is not None

    @property
    def too_long(self) -> bool:
        """True if the console is longer than MAX_CONSOLE bytes."""
        return self._console.stat().st_size > MAX_CONSOLE

    def console(self) -> str:
        """Return the text of the serial console so far, at most MAX_CONSOLE bytes of it."""
        with self._console.open("rb") as file:
            return file.read(MAX_CONSOLE).decode(errors="replace")

    def broken(self) -> str:
        """Return why QEMU itself ended; empty while it runs, or if the machine in it stopped regularly."""
        code = self._process.poll()
        output = self._console.with_suffix(".err").read_text(errors="replace").strip()[-400:]
        if code is None or (code == 0 and _TERMINATED not in output):
            return ""
        killed = f"it was killed by signal {-code} ({signal.strsignal(-code)})" if code < 0 else ""
        return "; ".join(part for part in (killed, output) if part) or f"{QEMU} ended with {code} and said nothing"

    def end(self) -> None:
        """Stop the QEMU process, by force if it does not end in time, and wait for it."""
        self._process.terminate()
        try:
            self._process.wait(timeouts.BOOT_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def require(firmware: Iterable[Firmware], ovmf: Path = OVMF) -> None:
    """Raise BadTask if this host lacks QEMU, or UEFI firmware in the folder `ovmf` although `firmware` names UEFI.

    Builds call it before they begin: their boots come minutes later.
    """
    if shutil.which(QEMU) is None:
        raise BadTask(f"{QEMU} is not installed: no test machine can be started", hint=_PACKAGES)
    if Firmware.UEFI in firmware:
        _uefi_code(ovmf)


def _uefi_code(ovmf: Path) -> Path:
    """Return the file of the UEFI firmware. Raises BadTask if this host has none."""
    code = next((ovmf / name for name in _CODE if (ovmf / name).exists()), None)
    if code is None:
        raise BadTask(f"{ovmf} has no UEFI firmware ({', '.join(_CODE)})", hint=_PACKAGES)
    return code


def processors(cores: int) -> int:
    """Return the number of processors of a test machine on a host with so many cores.

    Emulated processors wait for each other, so a second one takes more time than it saves where it has no core of its own: boots
    by BIOS and UEFI run side by side.
    """
    return 2 if cores >= _CORES_OF_TWO_MACHINES else 1


def start(machine: BootedMachine, hardware: Hardware, folder: Path) -> Running:
    """Start a test machine whose TFTP folder is `folder/tftp`. Raises BadTask if this host lacks QEMU or the firmware."""
    require([machine.firmware])
    console = folder / "console"
    console.touch()
    with console.with_suffix(".err").open("wb") as err:
        # the kernel ends it with us, however we end
        command = [sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid()), *_command(machine, hardware, folder)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
    return Running(machine, process, console)


def _command(machine: BootedMachine, hardware: Hardware, folder: Path) -> list[str]:
    card = f"{hardware.card},netdev=n0,mac={machine.mac},bootindex=0"
    user = f"user,id=n0,tftp={folder / 'tftp'},bootfile=boot.ipxe"
    wire = f"tap,id=n0,ifname={hardware.tap},script=no,downscript=no" if hardware.tap else user
    return [
        # no-reboot: a machine that restarts after a panic ends instead, by which `machine_boots` sees it
        *(QEMU, "-name", machine.name, "-nodefaults", "-no-user-config", "-no-reboot"),
        *("-accel", "tcg,thread=multi", "-cpu", PROCESSOR, "-smp", str(processors(len(os.sched_getaffinity(0))))),
        *("-m", str(machine.memory_mib)),
        *("-display", "none", "-monitor", "none", "-serial", f"file:{folder / 'console'}"),
        *("-netdev", wire, "-device", card),
        *("-device", "virtio-rng-pci"),
        *(("-rtc", f"base={hardware.clock}") if hardware.clock else ()),
        *_firmware(machine, folder),
    ]


def _firmware(machine: BootedMachine, folder: Path) -> list[str]:
    """Return QEMU's arguments for the machine's firmware: a BIOS with text on the serial line, or UEFI with its own variables."""
    if machine.firmware is Firmware.BIOS:
        return ["-machine", "pc,graphics=off", "-boot", "n"]
    code = _uefi_code(OVMF)
    variables = folder / "vars.fd"
    shutil.copyfile(code.with_name(code.name.replace("CODE", "VARS")), variables)
    flash = f"if=pflash,format=raw,readonly=on,file={code}"
    return ["-machine", "q35", "-drive", flash, "-drive", f"if=pflash,format=raw,file={variables}"]
