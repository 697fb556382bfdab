"""Stage image_boot: boots of the image's test machines, and what each must have shown."""

from msgspec import Struct

from steps.contract.image.booting import Boot, Firmware
from steps.contract.stages.image_sandbox import Case


class Booted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All machines that were started with one firmware. `root_digest` and `root_size` are those of the squashfs that was served
    (size in bytes as the manifest has it), `kernel` the release that its kernel has, `problem`: why no machine could be started."""

    key: str
    root_digest: str = ""
    root_size: int = 0
    kernel: str = ""
    boots: tuple[Boot, ...] = ()
    problem: str = ""


class Wanted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every machine must show: that image, its kernel release's package, an overlay as root, a clock within `clock_seconds`,
    room in its root, no failed unit, all tests passed. `machines` were to boot."""

    key: str
    firmware: Firmware
    machines: int
    tests: tuple[Case, ...] = ()
    seconds: float = 300.0
    clock_seconds: float = 60.0
    free_mib: int = 64
