"""Stage image_assemble: the files of a packed image, read back, and what they must be."""

from msgspec import Struct

from steps.contract.image.manifest import Part


class Assembled(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A packed image, read back after it was written: its key, the manifest's digest, the files as they lie there and as the
    manifest lists them; `cached`: nothing had to be packed; `kernel` is the version of the kernel in the file, `modules` that of
    the modules in the root and in the initrd (must be one and the same). `unracked` are drivers of racked machines' network cards,
    where the initrd has none of them: it is for virtual machines alone."""

    key: str
    manifest: str = ""
    found: tuple[Part, ...] = ()
    listed: tuple[Part, ...] = ()
    kernel: str = ""
    root_modules: str = ""
    initrd_modules: str = ""
    unracked: tuple[str, ...] = ()
    origin: str = ""
    """Where the recipe came from in this run: the image is equal for any."""
    cached: bool = False
    seconds: float = 0.0
    problem: str = ""


class Wanted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The image's key, and the most MiB that its squashfs may have (0: no bound)."""

    key: str
    budget_mib: int = 0
