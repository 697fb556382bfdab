"""Packing of a merged root into squashfs, kernel and initrd; runs in a namespace with the root mounted read-only."""

import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps import timeouts
from steps.clients import process
from steps.errors import BadTask
from steps.nodeimage.containment import namespace
from steps.nodeimage.contract import debian
from steps.nodeimage.contract.image_manifest import INITRD, KERNEL, ROOT
from steps.nodeimage.files import initrds
from steps.nodeimage.sandbox import root_scan
from steps.nodeimage.store import programs, store_entries

LEVEL: Final = 3
"""Compression level of zstd: 19 takes 15 times as long for a tenth less."""
_MOST_PROCESSORS: Final = 8
_MOST_MIB: Final = 2048
"""Memory limit for mksquashfs in MiB; by itself it takes a quarter of the machine's memory, but a pod has less than its node."""
_UNHEARD: Final = "Unrecognised xattr prefix system.posix_acl"
"""Warning of mksquashfs that is ignored: a squashfs keeps no access lists.

Only /var/log/journal has some, and systemd-tmpfiles sets them again when a node starts.
"""


class Pack(Struct, frozen=True, kw_only=True):
    """Order to pack a root into squashfs, kernel and initrd: output folder, time of all files (seconds), folder of kept initrds."""

    out: str
    epoch: int
    initrds: str


class Packed(Struct, frozen=True, kw_only=True):
    """Result of packing a root: the kernel's release, and whether a kept initrd was used.

    `installed` is package → state in the root, `seconds` the duration of each part.
    """

    kernel: str
    initrd_kept: bool
    installed: dict[str, str]
    seconds: dict[str, float]


def pack(root: Path, order: Pack) -> Packed:
    """Write squashfs, kernel and initrd of a merged root in parallel, and return the result. Raises BadTask, StoreBusy."""
    out, seconds = Path(order.out), dict[str, float]()
    kernel = initrds.kernel_of(root)
    with store_entries.guard_writes(), ThreadPoolExecutor(max_workers=1) as beside:
        squashed = beside.submit(_squash, root, out / ROOT, order.epoch, seconds)
        shutil.copyfile(root_scan.path_in_root(root, f"boot/vmlinuz-{kernel}"), out / KERNEL)
        begun = time.monotonic()
        listing = root_scan.read(root)
        initrd = initrds.put(root, listing, Path(order.initrds), out / INITRD, order.epoch)
        seconds["initrd"] = time.monotonic() - begun
        squashed.result()
    for name in (ROOT, KERNEL, INITRD):
        (out / name).chmod(0o644)
    states = debian.states(listing.texts.get(debian.STATUS, ""))
    return Packed(kernel=kernel, initrd_kept=initrd.cached, installed=states, seconds=seconds)


def _squash(root: Path, out: Path, epoch: int, seconds: dict[str, float]) -> None:
    """Write the root into a squashfs and record its duration in `seconds`.

    mksquashfs sorts by itself and gives the same bytes for any number of processors; times after `epoch` become `epoch`.
    """
    begun = time.monotonic()
    processors = min(len(os.sched_getaffinity(0)), _MOST_PROCESSORS)
    memory = min((os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20) // 4, _MOST_MIB)
    words = ["mksquashfs", str(root), str(out), "-noappend", "-no-progress", "-quiet", "-no-exports", *attribute_words(root)]
    words += ["-comp", "zstd", "-Xcompression-level", str(LEVEL), "-processors", str(processors), "-mem", f"{memory}M"]
    words += ["-wildcards", "-e", f"{root_scan.LEFT_OUT}/*"]
    done = process.run(["env", f"SOURCE_DATE_EPOCH={epoch}", *words], seconds=timeouts.IMAGE_SQUASH)
    warnings = [line for line in done.err.splitlines() if line.strip() and _UNHEARD not in line]
    store_entries.raise_if_full(done.err, f"mksquashfs could not write {out.name}")
    if done.code != 0 or warnings:
        raise BadTask(f"mksquashfs ended with {done.code}: {' | '.join(warnings[-4:]) or 'it said nothing'}")
    seconds["squashfs"] = time.monotonic() - begun


_OWN: Final = r"^(user\.|security\.capability$)"
"""Pattern of the extended attributes that belong to an image: capabilities of files, and attributes of users."""
_CHOOSES: Final = (4, 6)
"""First release of mksquashfs that can be told which extended attributes to take."""
_SEEN: Final = ("", "etc", "usr/bin")
"""Folders that are searched for attributes of the builder's kernel: SELinux labels all files, IMA at least programs."""
_NEVER: Final = "system."
"""Prefix of extended attributes that no squashfs takes."""


def attribute_words(root: Path) -> list[str]:
    """Return the arguments of mksquashfs that choose which extended attributes it packs.

    mksquashfs before 4.6 cannot choose: it also packs attributes that the builder's kernel wrote, so images of different machines
    differ. A note in the log says so.
    """
    release = programs.version(["mksquashfs", "-version"])
    if tuple(int(part) for part in re.findall(r"\d+", release)[:2]) >= _CHOOSES:
        return ["-xattrs-include", _OWN]
    if others := _others(root):
        note = f"note: mksquashfs {release} packs what this machine's kernel writes to files ({', '.join(others)})"
        namespace.tell(f"{note}: other machines make other bytes of the image; mksquashfs 4.6 leaves it out")
    return ["-xattrs"]


def _others(root: Path) -> list[str]:
    folders = [path for path in (root_scan.path_in_root(root, name) if name else root for name in _SEEN) if path.is_dir()]
    paths = [path for folder in folders for path in (folder, *folder.iterdir())]
    names = {name for path in paths for name in os.listxattr(path, follow_symlinks=False)}
    return sorted(name for name in names if not re.match(_OWN, name) and not name.startswith(_NEVER))
