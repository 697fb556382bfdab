"""Types of test boots: the machine that is started, the steps of its boot, and the report that the booted node sends by HTTP."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from steps.nodeimage.contract.image_tests import ImageTestResult

REPORT_PATH: Final = "/report"
"""Path to which a node posts its report."""
TESTS_PATH: Final = "/tests"
"""Path from which a node fetches its tests."""
REPORT_ARGUMENT: Final = "bringup.report"
"""Kernel argument with the URL of the server for tests and reports: `GET URL/tests`, `POST URL/report`."""
TESTS_ARGUMENT: Final = "bringup.tests"
"""Kernel argument (`yes`) that makes the node run the tests of that server; only a test boot has it."""
ARCHITECTURE: Final = "amd64"
"""Architecture of the test machines, as distributions name it."""
UNBOOTED: Final = "`bringup image build --until image_sandbox` builds and tests it without booting"
"""Hint in errors about images of other architectures than ARCHITECTURE, which test machines cannot boot."""


def why_not_booted(recipe: str, architecture: str) -> str:
    """Return why no test machine can boot the image of a recipe, for its architecture; empty if one can."""
    if architecture == ARCHITECTURE:
        return ""
    return f"recipe {recipe} is for {architecture}, and test machines are {ARCHITECTURE}: they cannot boot its image"


class Firmware(StrEnum):
    """Firmware that starts a test machine."""

    BIOS = "bios"
    UEFI = "uefi"


class BootFault(StrEnum):
    """Faults that can be injected into a test boot; each must be reported with its own cause."""

    TRUNCATED_ROOT = "truncated_root"
    WRONG_KERNEL = "wrong_kernel"
    NO_NETWORK_DRIVER = "no_network_driver"
    SERVER_GONE = "server_gone"
    WRONG_MAC = "wrong_mac"
    TMPFS_FULL = "tmpfs_full"
    WRONG_CLOCK = "wrong_clock"
    ROOT_NOT_OVERLAY = "root_not_overlay"


class NodeReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Report of a booted node, measured on the node and sent by HTTP.

    `root` is the file system type of `/`, `clock` the node's UTC time in seconds, `uptime` the seconds since its start when the
    tests began, `free_mib` the free space of `/`, `failed_units` systemd's failed units; `mac` and `address` belong to the
    interface that the node booted from.
    """

    mac: str
    address: str
    kernel: str
    root: str
    clock: float
    uptime: float
    image: str = ""
    """Digest (`sha256:…`) of the squashfs that the node runs, computed from its bytes on the node."""
    firmware: str = ""
    free_mib: int = 0
    node: str = ""
    """Host name of the node."""
    modules: bool = False
    """True if the root has modules of the running kernel."""
    failed_units: tuple[str, ...] = ()
    results: tuple[ImageTestResult, ...] = ()


class BootEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a booting machine, as the test server saw it.

    `at` is in seconds since the machine was started; `what` is `script`, `kernel`, `initrd`, `root`, `tests` or `report`; `sent` of
    `size` bytes were sent.
    """

    at: float
    what: str
    sent: int = 0
    size: int = 0


class MachineBoot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Boot of one test machine, as the gate of stage image_boot judges it.

    `ended` is `report`, `deadline`, `exit` (the machine stopped by itself), `console` (its console showed that nothing more would
    come) or `flood` (its console had no end). `console` are the last lines of its serial console, `stopped_at` is the cause or last
    sign of life there (a name of `console.SIGNS` or `console.LIVES`), `stopped_line` is the console's line with that cause,
    `kernel` the release of the kernel that started. `problem` says why a report was refused, `broken` why QEMU itself ended.
    """

    name: str
    firmware: Firmware
    mac: str
    seconds: float
    ended: str
    events: tuple[BootEvent, ...] = ()
    report: NodeReport | None = None
    clock: float = 0.0
    """UTC time in seconds of this host when the report came."""
    console: tuple[str, ...] = ()
    stopped_at: str = ""
    stopped_line: str = ""
    kernel: str = ""
    problem: str = ""
    broken: str = ""


class BootedMachine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Test machine to be started by QEMU: its name, firmware, MAC address and memory."""

    name: str
    firmware: Firmware
    mac: str
    memory_mib: int = 3072
