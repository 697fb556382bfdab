"""Test boots of an image, with the result of each; injected faults change the image, its script, the machine or the server."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from steps import timeouts
from steps.clients.private_folder import private_folder
from steps.errors import BadTask
from steps.nodeimage.contract import boot_test_protocol, build_keys, console, image_manifest, ipxe
from steps.nodeimage.contract.boot_tests import UNBOOTED, BootedMachine, BootFault, Firmware, MachineBoot, why_not_booted
from steps.nodeimage.contract.image_manifest import INITRD, KERNEL, ROOT, Manifest
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.files import initrd_archive
from steps.nodeimage.netboot.boot_test_server import BootTestServer, Orders, ServedFile
from steps.nodeimage.netboot.qemu_machine import GATEWAY, Hardware, Running, start
from steps.nodeimage.store import store_entries
from steps.stages.image_boot.contract import Booted

SLOWER = 20.0
"""Factor on the time limits of tests in a test boot, where QEMU emulates every instruction."""
ARGUMENTS = (
    *("console=ttyS0", "panic=1", "nowatchdog", "rcupdate.rcu_cpu_stall_suppress=1", "no_timer_check", "tsc=reliable"),
    *("mitigations=off", "init_on_alloc=0", "kfence.sample_interval=0", "nokaslr"),
)
"""Kernel arguments of every test boot: text on the serial line, end of the machine on a panic, and no watchdog alarms.

An emulated machine stands still for seconds on a busy host. If the first ticks of its timer come late, its kernel would panic with
`IO-APIC + timer doesn't work!`, and would give up its clock. The last four spare work that protects a kernel from attackers, and
that an emulated processor takes long for (docs.kernel.org/admin-guide/kernel-parameters.html).
"""

Say = Callable[[str], None]


class Disturbance(Struct, frozen=True, kw_only=True):
    """Changes that an injected fault makes to a good test boot.

    `root_share` of the root is served; after `gone_share` of it the server goes away. `kernel_file` is served in place of the
    kernel. The initrd is served without the files whose path matches `initrd_without`. `stranger`: the script is for another
    machine.
    """

    arguments: tuple[str, ...] = ()
    hardware: Hardware = Hardware()
    root_share: float = 1.0
    gone_share: float | None = None
    kernel_file: str = ""
    initrd_without: str = ""
    stranger: bool = False


NONE = Disturbance()

ALL: Final[Mapping[BootFault, Disturbance]] = {
    BootFault.TRUNCATED_ROOT: Disturbance(root_share=0.5),
    BootFault.WRONG_KERNEL: Disturbance(kernel_file=INITRD),
    # the driver of the card that every test machine has: the firmware can use it, and the kernel finds none
    BootFault.NO_NETWORK_DRIVER: Disturbance(initrd_without=r".*/virtio_net\.ko(\.\w+)?"),
    BootFault.SERVER_GONE: Disturbance(gone_share=0.5),
    BootFault.WRONG_MAC: Disturbance(stranger=True),
    # live-boot's overlay lies in a tmpfs
    BootFault.TMPFS_FULL: Disturbance(arguments=("overlay-size=512k",)),
    BootFault.WRONG_CLOCK: Disturbance(hardware=Hardware(clock="2038-01-01T00:00:00")),
    # live-boot mounts the squashfs itself, read-only
    BootFault.ROOT_NOT_OVERLAY: Disturbance(arguments=("exposedroot", "skipunion", "skipconfig")),
}
"""Fault → the changes that it makes to a test boot."""


class BootPlan(Struct, frozen=True, kw_only=True):
    """Inputs of one test boot: the folder of the packed image, its manifest, its recipe with the tests, and the fault's changes."""

    folder: Path
    image: Manifest
    recipe: Recipe
    disturbance: Disturbance


def boot(
    images: Path,
    recipe: Recipe,
    firmware: Firmware,
    machines: int,
    memory_mib: int,
    seconds: float,
    say: Say,
    fault: BootFault | None = None,
) -> Booted:
    """Boot a recipe's packed image in this many QEMU machines at once, wait at most `seconds`, and return what each boot showed.

    Raises BadTask if the image is not packed, or if no machine can be started here.
    """
    if why := why_not_booted(recipe.name, recipe.architecture):
        raise BadTask(why, hint=UNBOOTED)
    key = build_keys.image(recipe)
    folder = images / "assembled" / key
    with store_entries.hold_entry(folder):
        image = _manifest(folder)
        root = image.part(ROOT)
        plan = BootPlan(folder=folder, image=image, recipe=recipe, disturbance=ALL[fault] if fault else NONE)
        planned = [machine(number, firmware, memory_mib) for number in range(1, machines + 1)]
        boots, digest, size = _all(plan, planned, seconds, say), root.digest if root else "", root.size if root else 0
        return Booted(key=key, root_digest=digest, root_size=size, kernel=image.kernel, boots=boots)


def machine(number: int, firmware: Firmware, memory_mib: int) -> BootedMachine:
    """Return the description of the test machine with this number, firmware and memory."""
    mac = f"52:54:00:b0:{list(Firmware).index(firmware):02x}:{number:02x}"
    return BootedMachine(name=f"{firmware}{number}", firmware=firmware, mac=mac, memory_mib=memory_mib)


def _manifest(folder: Path) -> Manifest:
    try:
        return image_manifest.decode((folder / image_manifest.MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise BadTask(f"{folder} has no packed image", hint="assemble it first: `bringup image build`") from error
    except image_manifest.ManifestError as error:
        raise BadTask(f"{folder}: {error}", hint="remove this folder; the next build packs the image again") from error


def _all(plan: BootPlan, machines: list[BootedMachine], seconds: float, say: Say) -> tuple[MachineBoot, ...]:
    with private_folder() as private, BootTestServer() as server:
        parts = _parts(plan, private)
        for machine in machines:
            _prepare(plan, machine, parts, private / machine.name, server)
        server.start()
        watch = Watch(server, seconds, say)
        try:
            for machine in machines:
                watch.running[machine.name] = start(machine, plan.disturbance.hardware, private / machine.name)
                say(f"{machine.name}: started, {machine.firmware}, {machine.memory_mib} MiB, {machine.mac}")
            return watch.until_all_ended()
        finally:
            for running in watch.running.values():
                running.end()


def _prepare(plan: BootPlan, machine: BootedMachine, parts: dict[str, ServedFile], folder: Path, server: BootTestServer) -> None:
    """Write the machine's TFTP folder, and set the server's responses for it. Raises BadTask for a test that no node can run."""
    (folder / "tftp").mkdir(parents=True)
    base = f"http://{GATEWAY}:{server.port}{server.place(machine.name)}"
    (folder / "tftp" / "boot.ipxe").write_text(ipxe.chain(f"{base}/boot.ipxe"))
    try:
        tests = boot_test_protocol.render(boot_test_protocol.on_node(plan.recipe.tests), SLOWER)
    except ValueError as error:
        raise BadTask(f"recipe {plan.recipe.name}: {error}") from error
    server.serve(machine.name, Orders(script=_script(plan, machine, base), tests=tests, parts=parts))


def _script(plan: BootPlan, machine: BootedMachine, base: str) -> str:
    root = plan.image.part(ROOT)
    mac = "52:54:00:b0:ff:ff" if plan.disturbance.stranger else machine.mac
    return ipxe.script(
        ipxe.Loaded(
            title=f"{plan.image.name} for {machine.name}",
            kernel=f"{base}/{KERNEL}",
            initrd=f"{base}/{INITRD}",
            root=f"{base}/{ROOT}",
            image=root.digest if root else "",
            arguments=(*plan.image.kernel_arguments, *ARGUMENTS, *plan.disturbance.arguments),
            report=base,
            tests=True,
            machines={mac: machine.name},
        )
    )


def _parts(plan: BootPlan, private: Path) -> dict[str, ServedFile]:
    """Return name → image file as this boot serves it; a file that a fault changes lies in the private folder."""
    changed, parts = plan.disturbance, {}
    for what, name in (("kernel", KERNEL), ("initrd", INITRD), ("root", ROOT)):
        path = plan.folder / (changed.kernel_file if what == "kernel" and changed.kernel_file else name)
        parts[name] = ServedFile(what=what, path=path, size=path.stat().st_size)
    if changed.initrd_without:
        path = private / INITRD
        path.write_bytes(initrd_archive.without(plan.folder / INITRD, changed.initrd_without))
        parts[INITRD] = ServedFile(what="initrd", path=path, size=path.stat().st_size)
    root = parts[ROOT]
    gone = None if changed.gone_share is None else int(root.size * changed.gone_share)
    parts[ROOT] = replace(root, size=int(root.size * changed.root_share), gone_after=gone)
    return parts


class Watch:
    """Loop that watches the running test machines and stops each as soon as its result is known."""

    def __init__(self, server: BootTestServer, seconds: float, say: Say) -> None:
        self.running: dict[str, Running] = {}
        self._server = server
        self._seconds = seconds
        self._say = say
        self._began = time.monotonic()
        self._boots: dict[str, MachineBoot] = {}
        self._over: dict[str, float] = {}

    def until_all_ended(self) -> tuple[MachineBoot, ...]:
        """Wait until every machine's boot has ended, and return the boots in the order of start."""
        while pending := [running for name, running in self.running.items() if name not in self._boots]:
            for running in pending:
                if ended := self._ended(running):
                    self._boots[running.machine.name] = self._result(running, ended)
                    running.end()
            if len(self._boots) < len(self.running):
                self._server.news.wait(timeouts.BOOT_LOOK)
                self._server.news.clear()
        return tuple(self._boots[name] for name in self.running)

    def _ended(self, running: Running) -> str:
        """Return how a machine's boot ended (see `MachineBoot.ended`); empty while it goes on."""
        stopped = running.ended  # before what it said last is looked at
        if self._server.heard(running.machine.name).report is not None:
            return "report"
        if stopped:
            return "exit"
        if running.too_long:
            return "flood"
        if self._is_over(running):
            return "console"
        return "deadline" if time.monotonic() - self._began > self._seconds else ""

    def _is_over(self, running: Running) -> bool:
        """Return True if the console has shown for BOOT_OVER seconds that nothing more will come."""
        if not console.read(running.console()).over:
            self._over.pop(running.machine.name, None)
            return False
        first = self._over.setdefault(running.machine.name, time.monotonic())
        return time.monotonic() - first >= timeouts.BOOT_OVER

    def _result(self, running: Running, ended: str) -> MachineBoot:
        machine, text = running.machine, running.console()
        heard, reading = self._server.heard(machine.name), console.read(text)
        seconds = time.monotonic() - self._began
        self._say(f"{machine.name}: {ended} after {seconds:.1f} s{f', {reading.name}' if reading.name else ''}")
        return MachineBoot(
            name=machine.name,
            firmware=machine.firmware,
            mac=machine.mac,
            seconds=round(seconds, 2),
            ended=ended,
            events=self._server.events(machine.name),
            report=heard.report,
            clock=heard.clock,
            console=console.last_lines(text),
            stopped_at=reading.name,
            stopped_line=console.cause_line(text, reading.name),
            kernel=reading.kernel,
            problem=heard.problem,
            broken=running.broken() if ended == "exit" else "",
        )
