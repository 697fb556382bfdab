"""Packs a merged root into files of an image: squashfs, kernel, initrd; called in a namespace, with the root mounted read-only."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps import timeouts
from steps.clients import process
from steps.clients.image import room
from steps.clients.image.contained import confined
from steps.clients.image.files import initrds, labels
from steps.clients.image.sandbox import scanning
from steps.contract.image import debian
from steps.contract.image.manifest import INITRD, KERNEL, ROOT
from steps.errors import BadTask

LEVEL: Final = 3
"""Of zstd: 19 takes 15 times as long for a tenth less."""
_MOST_PROCESSORS: Final = 8
_MOST_MIB: Final = 2048
"""Of memory for mksquashfs, which takes a quarter of the machine's by itself: a pod has less than its node."""
_UNHEARD: Final = "Unrecognised xattr prefix system.posix_acl"
"""A squashfs keeps no access lists: those of /var/log/journal, which systemd-tmpfiles sets again when a node starts."""


class Pack(Struct, frozen=True, kw_only=True):
    """Where to write, the time of all files, and the folder of kept initrds."""

    out: str
    epoch: int
    initrds: str


class Packed(Struct, frozen=True, kw_only=True):
    """What was packed: the kernel's version, whether the initrd was a kept one, the root's packages with their state in
    the package manager's words, seconds of each part."""

    kernel: str
    initrd_kept: bool
    installed: dict[str, str]
    seconds: dict[str, float]


def pack(root: Path, told: Pack) -> Packed:
    """Write the three files side by side."""
    out, seconds = Path(told.out), dict[str, float]()
    kernel = initrds.kernel_of(root)
    with room.needed(), ThreadPoolExecutor(max_workers=1) as beside:
        squashed = beside.submit(_squash, root, out / ROOT, told.epoch, seconds)
        shutil.copyfile(confined.place(root, f"boot/vmlinuz-{kernel}"), out / KERNEL)
        begun = time.monotonic()
        listing = scanning.read(root)
        made = initrds.put(root, listing, Path(told.initrds), out / INITRD, told.epoch)
        seconds["initrd"] = time.monotonic() - begun
        squashed.result()
    for name in (ROOT, KERNEL, INITRD):
        (out / name).chmod(0o644)
    states = debian.states(listing.texts.get(debian.STATUS, ""))
    return Packed(kernel=kernel, initrd_kept=made.cached, installed=states, seconds=seconds)


def _squash(root: Path, out: Path, epoch: int, seconds: dict[str, float]) -> None:
    """mksquashfs sorts by itself and gives the same bytes for any number of processors; times after `epoch` become `epoch`."""
    begun = time.monotonic()
    processors = min(len(os.sched_getaffinity(0)), _MOST_PROCESSORS)
    words = ["mksquashfs", str(root), str(out), "-noappend", "-no-progress", "-quiet", "-no-exports", *labels.words(root)]
    words += ["-comp", "zstd", "-Xcompression-level", str(LEVEL), "-processors", str(processors), "-mem", f"{_memory_mib()}M"]
    words += ["-wildcards", "-e", f"{scanning.LEFT_OUT}/*"]
    done = process.run(["env", f"SOURCE_DATE_EPOCH={epoch}", *words], seconds=timeouts.IMAGE_SQUASH)
    said = [line for line in done.err.splitlines() if line.strip() and _UNHEARD not in line]
    room.heard(done.err, f"mksquashfs could not write {out.name}")
    if done.code != 0 or said:
        raise BadTask(f"mksquashfs ended with {done.code}: {' | '.join(said[-4:]) or 'it said nothing'}")
    seconds["squashfs"] = time.monotonic() - begun


def _memory_mib() -> int:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return min(whole // 4, _MOST_MIB)
