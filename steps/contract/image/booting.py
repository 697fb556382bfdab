"""Test boots of an image: what is started, and what the booted node reports of itself by HTTP POST."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from steps.contract.image.testing import ImageTest, Result

REPORT_PATH: Final = "/report"
"""Where a node posts its report."""
TESTS_PATH: Final = "/tests"
"""Where it asks for its tests."""
REPORT_ARGUMENT: Final = "bringup.report"
"""Kernel argument with the URL of the server that tests and hears the node: `GET URL/tests`, `POST URL/report`."""
TESTS_ARGUMENT: Final = "bringup.tests"
"""Kernel argument that lets the node run that server's tests (`yes`), in a test boot alone."""
ARCHITECTURE: Final = "amd64"
"""Of the machines that boot images to test them, as distributions name it."""
UNBOOTED: Final = "`bringup image build --until image_sandbox` builds and tests it without booting"
"""What can be done with an image for other machines."""


def why_not_booted(recipe: str, architecture: str) -> str:
    """Why no test machine can boot the image of a recipe; empty where they can."""
    if architecture == ARCHITECTURE:
        return ""
    return f"recipe {recipe} is for {architecture}, and test machines are {ARCHITECTURE}: they cannot boot its image"


class Firmware(StrEnum):
    """What starts the machine."""

    BIOS = "bios"
    UEFI = "uefi"


class BootFault(StrEnum):
    """Disturbances of a test boot; each must end with its own cause."""

    TRUNCATED_ROOT = "truncated_root"
    WRONG_KERNEL = "wrong_kernel"
    NO_NETWORK_DRIVER = "no_network_driver"
    SERVER_GONE = "server_gone"
    WRONG_MAC = "wrong_mac"
    TMPFS_FULL = "tmpfs_full"
    WRONG_CLOCK = "wrong_clock"
    ROOT_NOT_OVERLAY = "root_not_overlay"


class NodeReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the node said of itself, measured there. `root` is the file system of `/`; `clock` its UTC time in seconds; `uptime` in
    seconds when its tests began; `free_mib` what its root can still take; `failed_units` are systemd's; `mac` and `address` those
    of the interface that it booted from."""

    mac: str
    address: str
    kernel: str
    root: str
    clock: float
    uptime: float
    image: str = ""
    """Digest of the squashfs that it fetched and runs (`sha256:…`), of its bytes as they lie there."""
    firmware: str = ""
    free_mib: int = 0
    node: str = ""
    """Its host name."""
    modules: bool = False
    """Whether the root has modules of the kernel that runs."""
    failed_units: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a boot as the servers saw it: seconds since the machine was started, what (`script`, `kernel`, `initrd`, `root`,
    `tests`, `report`), bytes sent, and of how many."""

    at: float
    what: str
    sent: int = 0
    size: int = 0


class Boot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One machine's boot. `ended` is how: `report`, `deadline`, `exit` (the machine stopped by itself), `console` (its console
    showed that nothing more would come), `flood` (its console had no end); `console` are the last lines of its serial console,
    `stopped_at` the cause or the last sign of life there that a reader knows (a name of `console.SIGNS` or `console.LIVES`),
    `kernel` the release of the kernel that started as it says there, `problem` why a report of its was refused, `broken` why QEMU
    itself ended."""

    name: str
    firmware: Firmware
    mac: str
    seconds: float
    ended: str
    events: tuple[Event, ...] = ()
    report: NodeReport | None = None
    clock: float = 0.0
    """This machine's UTC time when the report came."""
    console: tuple[str, ...] = ()
    stopped_at: str = ""
    kernel: str = ""
    problem: str = ""
    broken: str = ""


class Machine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A test machine to start."""

    name: str
    firmware: Firmware
    mac: str
    memory_mib: int = 3072
    processors: int = 2


class Tests(Struct, frozen=True, kw_only=True):
    """What a node is asked to run."""

    tests: tuple[ImageTest, ...]
