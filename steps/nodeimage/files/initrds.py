"""Making of a root's initrd by its own mkinitramfs, without a change in the root; kept for roots that would give an equal one."""

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients import process
from steps.contract.canonical import canonical, digest
from steps.errors import BadTask
from steps.nodeimage.containment import bubblewrap
from steps.nodeimage.contract import root_checks
from steps.nodeimage.contract.build_keys import PACKER
from steps.nodeimage.contract.root_listing import FOLDER, LINK, REGULAR, RootListing
from steps.nodeimage.files import initrd_archive, initrd_sources
from steps.nodeimage.files.initrd_sources import Words
from steps.nodeimage.sandbox import root_scan
from steps.nodeimage.store import store_entries

NETWORK_DRIVERS: Final = (
    "virtio_net",
    "virtio_pci",
    "e1000",
    "e1000e",
    "igb",
    "igc",
    "ixgbe",
    "i40e",
    "ice",
    "bnxt_en",
    "tg3",
    "r8169",
)
ROOT_DRIVERS: Final = ("overlay", "squashfs", "loop")
MELLANOX: Final = ("mlx4_en", "mlx5_core")
DRIVERS: Final = (*NETWORK_DRIVERS, *MELLANOX, *ROOT_DRIVERS)
"""Modules that every initrd gets if the kernel has them, besides those of MODULES=most, because nodes boot from the network."""
LEVEL: Final = 3
"""Compression level of zstd: level 9 takes 2 MB off 16 and three times as long."""
FILE, RECORD = "initrd.img", "record.json"
MOST_LOOKED_AT: Final = 6
"""Number of kept initrds of one kernel that are compared with a root, newest first."""
_MODULES: Final = "usr/lib/modules"
_SETTINGS: Final = "/etc/initramfs-tools"
_OURS: Final = "/run/settings"


class InitrdRecord(Struct, frozen=True):
    """Record of a kept initrd: the words of the scripts that made it, source path → state in the root, the initrd's digest."""

    words: Words
    seen: dict[str, str]
    digest: str


class InitrdResult(Struct, frozen=True, kw_only=True):
    """Result of making an initrd: the kernel, the number of source paths, and `cached`: it is a copy of a kept one."""

    kernel: str
    cached: bool
    sources: int


def kernel_of(root: Path) -> str:
    """Return the release of the only kernel in a root's /boot.

    Raises BadTask if the root has none or several, or lacks its modules.
    """
    kernels = sorted(path.name.removeprefix("vmlinuz-") for path in root_scan.path_in_root(root, "boot").glob("vmlinuz-*"))
    if len(kernels) != 1:
        there = f"{len(kernels)} kernels ({', '.join(kernels)})" if kernels else "no kernel"
        raise BadTask(f"the root has {there} in /boot, and an image has one", hint="see `kernel` and the packages of the recipe")
    if not root_scan.path_in_root(root, f"{_MODULES}/{kernels[0]}/modules.dep").is_file():
        raise BadTask(f"the root has no modules of its kernel {kernels[0]} (/{_MODULES}/{kernels[0]}/modules.dep is missing)")
    return kernels[0]


def put(root: Path, listing: RootListing, kept: Path, out: Path, epoch: int) -> InitrdResult:
    """Write the initrd of a root to `out`: a kept one if all its sources are unchanged, else a new one, which is then kept."""
    kernel = kernel_of(root)
    group = kept / digest([PACKER, kernel, epoch, DRIVERS, LEVEL]).removeprefix("sha256:")[:32]
    looked: dict[str, str] = {}
    paths = [path for path in listing.entries if not path.startswith("boot/")] + [f"boot/config-{kernel}"]
    for record_file in _newest(group):
        record = _record(record_file.parent)
        if record is None or observe(root, listing, paths, record.words, looked, epoch) != record.seen:
            continue
        if _copied(record_file.with_name(FILE), out, record.digest):
            store_entries.note_use(record_file)
            return InitrdResult(kernel=kernel, cached=True, sources=len(record.seen))
    _make(root, listing, kernel, out, epoch)
    words = _words(root, listing, paths, out)
    record = InitrdRecord(words, observe(root, listing, paths, words, looked, epoch), _digest(out))
    data = canonical(record)
    with store_entries.make_entry(group, hashlib.sha256(data).hexdigest()[:32], good=_is_whole) as work:
        if work is not None:
            shutil.copyfile(out, work / FILE)
            (work / RECORD).write_bytes(data)
    return InitrdResult(kernel=kernel, cached=False, sources=len(record.seen))


def observe(
    root: Path, listing: RootListing, paths: Iterable[str], words: Words, looked: dict[str, str], epoch: int
) -> dict[str, str]:
    """Return path → state for every path of the root that could change its initrd (see `initrd_sources.relevant`).

    The state of a link includes its target's, because copying follows links. `looked` caches states between calls.
    """
    states: dict[str, str] = {}

    def look(path: str) -> str:
        if path not in looked:
            looked[path] = _whole(root / path, epoch)
        return looked[path]

    kinds = ((path, path in listing.entries and listing.entries[path].kind == FOLDER) for path in paths)
    for path, content in initrd_sources.relevant(kinds, words):
        entry = listing.entries.get(path)
        if content or entry is None:
            leads = _leads(listing, path) if entry and entry.kind == LINK else ""
            states[path] = f"{look(path)}: {look(leads)}" if leads else look(path)
        else:
            states[path] = f"{entry.kind} {entry.size} {entry.link}"
    return states


def _leads(listing: RootListing, path: str) -> str:
    """Return the path of the regular file that a link leads to; empty if it leads to none."""
    place = listing.resolve(path) or ""
    entry = listing.entries.get(place)
    return place if entry and entry.kind == REGULAR else ""


def _whole(path: Path, epoch: int) -> str:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return "absent"
    about = f"{facts.st_mode:o} {facts.st_uid}:{facts.st_gid}"
    if stat.S_ISLNK(facts.st_mode):
        return f"{LINK} {os.readlink(path)}"
    if not stat.S_ISREG(facts.st_mode):
        return f"{FOLDER} {about}"
    with path.open("rb") as file:
        return f"{REGULAR} {about} {min(int(facts.st_mtime), epoch)} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _words(root: Path, listing: RootListing, paths: Iterable[str], initrd: Path) -> Words:
    there = list(paths)
    places = [listing.resolve(path) or "" for path in there if path.startswith(initrd_sources.PROGRAMS)]
    scripts = [path for path in places if path in listing.entries and listing.entries[path].kind == REGULAR]
    texts = [(root / path).read_text(errors="replace") for path in scripts]
    members = {member.path: member.links if stat.S_ISREG(member.mode) else 1 for member in initrd_archive.read(initrd)}
    return initrd_sources.words(texts, members, there)


def _make(root: Path, listing: RootListing, kernel: str, out: Path, epoch: int) -> None:
    program = "/usr/sbin/mkinitramfs"
    if listing.resolve(program) is None:
        raise BadTask(f"the root has no {program}", hint="let a layer of the recipe install initramfs-tools and live-boot")
    work = out.with_name(".initrd")
    settings, result = work / "settings", work / "made"
    result.mkdir(parents=True)
    shutil.copytree(root_scan.path_in_root(root, _SETTINGS[1:]), settings, symlinks=True)
    settle(settings, kernel, listing)
    words = [program, "-d", _OURS, "-c", _compression(listing), "-o", f"/run/made/{FILE}", kernel]
    line = bubblewrap.command(
        root,
        words,
        readable={_OURS: settings},
        writable={"/run/made": result},
        environment={"SOURCE_DATE_EPOCH": str(epoch), "TMPDIR": "/tmp"},
    )
    done = process.run(line, seconds=timeouts.IMAGE_INITRD)
    if done.code != 0 or not (result / FILE).is_file():
        output = " | ".join(done.err.split("\n")[-6:]).strip(" |")
        raise BadTask(f"mkinitramfs of the root ended with {done.code}: {output or 'it said nothing'}")
    shutil.move(result / FILE, out)
    shutil.rmtree(work)


def _compression(listing: RootListing) -> str:
    """Return `zstd` or `gzip`, whichever the root's own programs offer: this machine's zstd then has no effect on the bytes."""
    return "zstd" if listing.resolve("/usr/bin/zstd") else "gzip"


def settle(settings: Path, kernel: str, listing: RootListing) -> None:
    """Write mkinitramfs' settings for a node image into a copy of its settings folder: drivers of all networks, no resume device.

    Raises BadTask if a link is in the place of a written file, because it would lead out of this copy.
    """
    for name in ("modules", "conf.d", "conf.d/node-image"):
        if (settings / name).is_symlink():
            hint = "have the layer that makes it put a file or folder there"
            raise BadTask(f"the root's {_SETTINGS}/{name} is a link", hint=hint)
    lists = [text for path, text in listing.texts.items() if path.startswith(f"{_MODULES}/{kernel}/modules.dep")]
    names = {root_checks.module_name(line) for text in lists for line in text.splitlines()}
    with (settings / "modules").open("a") as file:
        file.writelines(f"{name}\n" for name in DRIVERS if name in names)
    (settings / "conf.d").mkdir(exist_ok=True)
    level = f"COMPRESSLEVEL={LEVEL}\n" if _compression(listing) == "zstd" else ""
    (settings / "conf.d" / "node-image").write_text(f"RESUME=none\n{level}")


def _newest(group: Path) -> list[Path]:
    records = []
    for path in group.glob(f"*/{RECORD}"):
        with contextlib.suppress(FileNotFoundError):  # a collector takes it away now
            records.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(records, reverse=True)[:MOST_LOOKED_AT]]


def _record(folder: Path) -> InitrdRecord | None:
    """Return the record of a kept initrd; None if it cannot be read, so that the initrd is made anew."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=InitrdRecord)
    return None


def _copied(kept: Path, out: Path, digest: str) -> bool:
    """Copy a kept initrd to `out`; return False if it is missing or its bytes have another digest."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(kept, out)
        return _digest(out) == digest
    return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _is_whole(folder: Path) -> bool:
    record = _record(folder)
    return record is not None and (folder / FILE).is_file() and _digest(folder / FILE) == record.digest
