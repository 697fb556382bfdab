"""Boots an image in test machines, and says what each of them came to."""

import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from steps import timeouts
from steps.clients.image import entries
from steps.clients.image.files import cpio
from steps.clients.netboot import disturbances
from steps.clients.netboot.disturbances import Disturbance
from steps.clients.netboot.machine import GATEWAY, Running, start
from steps.clients.netboot.server import Orders, Part, Server
from steps.clients.private_folder import private_folder
from steps.contract.image import console, ipxe, keys, manifest, on_node
from steps.contract.image.booting import UNBOOTED, Boot, BootFault, Firmware, Machine, why_not_booted
from steps.contract.image.manifest import INITRD, KERNEL, ROOT, Manifest
from steps.contract.image.recipe import Recipe
from steps.contract.stages.image_boot import Booted
from steps.errors import BadTask

SLOWER = 20.0
"""How much longer than on a real node a test may take: every instruction is emulated."""
ARGUMENTS = ("console=ttyS0", "panic=1", "mitigations=off", "nowatchdog", "rcupdate.rcu_cpu_stall_suppress=1", "no_timer_check")
"""Of every test boot: text on the serial line, the end of the machine where nothing more will come, and no alarm when the machine
stands still for seconds, as an emulated one does on a busy host. Where the first ticks of its timer come late, its kernel would end
in a panic: `IO-APIC + timer doesn't work!`"""

Say = Callable[[str], None]


class Plan(Struct, frozen=True, kw_only=True):
    """What is booted: the folder of the packed image, its manifest, its tests, and what is disturbed."""

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
    """Boot an image in so many machines at once. Raises BadTask where it is not packed, or no machine can be started here."""
    if why := why_not_booted(recipe.name, recipe.architecture):
        raise BadTask(why, hint=UNBOOTED)
    key = keys.image(recipe)
    folder = images / "assembled" / key
    with entries.held(folder):
        image = _manifest(folder)
        root = image.part(ROOT)
        disturbance = disturbances.ALL[fault] if fault else disturbances.NONE
        plan = Plan(folder=folder, image=image, recipe=recipe, disturbance=disturbance)
        wanted = [machine(number, firmware, memory_mib) for number in range(1, machines + 1)]
        booted = Booted(key=key, root_digest=root.digest if root else "", root_size=root.size if root else 0, kernel=image.kernel)
        return replace(booted, boots=_all(plan, wanted, seconds, say))


def machine(number: int, firmware: Firmware, memory_mib: int) -> Machine:
    """The how-manieth test machine with a firmware."""
    family = list(Firmware).index(firmware)
    mac = f"52:54:00:b0:{family:02x}:{number:02x}"
    return Machine(name=f"{firmware}{number}", firmware=firmware, mac=mac, memory_mib=memory_mib)


def _manifest(folder: Path) -> Manifest:
    try:
        return manifest.decode((folder / manifest.MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise BadTask(f"{folder} has no packed image", hint="assemble it first: `bringup image build`") from error
    except manifest.ManifestError as error:
        raise BadTask(f"{folder}: {error}", hint="remove this folder; the next build packs the image again") from error


def _all(plan: Plan, machines: list[Machine], seconds: float, say: Say) -> tuple[Boot, ...]:
    with private_folder() as private, Server() as server:
        parts = _parts(plan, private)
        for one in machines:
            _prepare(plan, one, parts, private / one.name, server)
        server.start()
        watch = Watch(server, seconds, say)
        try:
            for one in machines:
                watch.running[one.name] = start(one, plan.disturbance.hardware, private / one.name)
                say(f"{one.name}: started, {one.firmware}, {one.memory_mib} MiB, {one.mac}")
            return watch.until_all_ended()
        finally:
            for running in watch.running.values():
                running.end()


def _prepare(plan: Plan, one: Machine, parts: dict[str, Part], folder: Path, server: Server) -> None:
    """The machine's folder, and what the server has for it."""
    (folder / "tftp").mkdir(parents=True)
    base = f"http://{GATEWAY}:{server.port}{server.place(one.name)}"
    (folder / "tftp" / "boot.ipxe").write_text(ipxe.chain(f"{base}/boot.ipxe"))
    tests = _tests(plan.recipe)
    server.serve(one.name, Orders(script=_script(plan, one, base), tests=tests, parts=parts))


def _tests(recipe: Recipe) -> bytes:
    try:
        return on_node.render(on_node.on_node(recipe.tests), SLOWER)
    except ValueError as error:
        raise BadTask(f"recipe {recipe.name}: {error}") from error


def _script(plan: Plan, one: Machine, base: str) -> str:
    root = plan.image.part(ROOT)
    mac = "52:54:00:b0:ff:ff" if plan.disturbance.stranger else one.mac
    return ipxe.script(
        ipxe.Loaded(
            title=f"{plan.image.name} for {one.name}",
            kernel=f"{base}/{KERNEL}",
            initrd=f"{base}/{INITRD}",
            root=f"{base}/{ROOT}",
            image=root.digest if root else "",
            arguments=(*plan.image.kernel_arguments, *ARGUMENTS, *plan.disturbance.arguments),
            report=base,
            tests=True,
            machines={mac: one.name},
        )
    )


def _parts(plan: Plan, private: Path) -> dict[str, Part]:
    """The files of the image as this boot serves them; a changed one lies in the private folder."""
    changed, parts = plan.disturbance, {}
    for what, name in (("kernel", KERNEL), ("initrd", INITRD), ("root", ROOT)):
        path = plan.folder / (changed.kernel_file if what == "kernel" and changed.kernel_file else name)
        parts[name] = Part(what=what, path=path, size=path.stat().st_size)
    if changed.initrd_without:
        path = private / INITRD
        path.write_bytes(cpio.without(plan.folder / INITRD, changed.initrd_without))
        parts[INITRD] = Part(what="initrd", path=path, size=path.stat().st_size)
    root = parts[ROOT]
    gone = None if changed.gone_share is None else int(root.size * changed.gone_share)
    parts[ROOT] = replace(root, size=int(root.size * changed.root_share), gone_after=gone)
    return parts


class Watch:
    """Watches machines until each has come to its end."""

    def __init__(self, server: Server, seconds: float, say: Say) -> None:
        self.running: dict[str, Running] = {}
        self._server = server
        self._seconds = seconds
        self._say = say
        self._began = time.monotonic()
        self._found: dict[str, Boot] = {}
        self._over: dict[str, float] = {}

    def until_all_ended(self) -> tuple[Boot, ...]:
        """What each came to; it is stopped as soon as that is known."""
        while left := [one for name, one in self.running.items() if name not in self._found]:
            for one in left:
                ended = self._ended(one)
                if ended:
                    self._found[one.machine.name] = self._result(one, ended)
                    one.end()
            if len(self._found) < len(self.running):
                self._server.news.wait(timeouts.BOOT_LOOK)
                self._server.news.clear()
        return tuple(self._found[name] for name in self.running)

    def _ended(self, one: Running) -> str:
        """How a machine's boot ended; empty while it goes on."""
        stopped = one.ended  # before what it said last is looked at
        if self._server.heard(one.machine.name).report is not None:
            return "report"
        if stopped:
            return "exit"
        if one.too_long:
            return "flood"
        if self._is_over(one):
            return "console"
        return "deadline" if time.monotonic() - self._began > self._seconds else ""

    def _is_over(self, one: Running) -> bool:
        """Whether its console shows that nothing more will come, and has done so for a while."""
        if not console.read(one.console()).over:
            self._over.pop(one.machine.name, None)
            return False
        first = self._over.setdefault(one.machine.name, time.monotonic())
        return time.monotonic() - first >= timeouts.BOOT_OVER

    def _result(self, one: Running, ended: str) -> Boot:
        name, text = one.machine.name, one.console()
        heard, reading = self._server.heard(name), console.read(text)
        taken = time.monotonic() - self._began
        self._say(f"{name}: {ended} after {taken:.1f} s{f', {reading.name}' if reading.name else ''}")
        return Boot(
            name=name,
            firmware=one.machine.firmware,
            mac=one.machine.mac,
            seconds=round(taken, 2),
            ended=ended,
            events=self._server.events(name),
            report=heard.report,
            clock=heard.clock,
            console=console.last_lines(text),
            stopped_at=reading.name,
            kernel=reading.kernel,
            problem=heard.problem,
            broken=one.broken() if ended == "exit" else "",
        )
