"""Types of stage image_assemble: the files of a packed image, read back from the store, and the expectation of its gate."""

from typing import Final

from msgspec import Struct

from steps.nodeimage.contract.image_manifest import ImageFile

PRODUCT: Final = "nodeimage"
"""Folder of `steps` with the tasks and the report of this stage."""


class Assembled(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate image_assemble/outputs: a packed image, read back after it was written.

    `found` are its files, `listed` the files in its manifest, `manifest` the manifest's digest. `cached`: nothing had to be packed.
    `kernel` is the version of the kernel file, `root_modules` and `initrd_modules` those of the modules; all three must be equal.
    `unracked` are drivers of racked machines' network cards that the initrd lacks, so the image boots in virtual machines only.
    """

    key: str
    manifest: str = ""
    found: tuple[ImageFile, ...] = ()
    listed: tuple[ImageFile, ...] = ()
    kernel: str = ""
    root_modules: str = ""
    initrd_modules: str = ""
    unracked: tuple[str, ...] = ()
    origin: str = ""
    """Origin of the recipe in this run; the image does not depend on it."""
    cached: bool = False
    seconds: float = 0.0
    problem: str = ""


class OutputsExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expectation of the gate image_assemble/outputs: the image's key, and the most MiB of its squashfs (0: no limit)."""

    key: str
    budget_mib: int = 0
