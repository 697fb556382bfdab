"""Reads a packed image as it lies there: digests of its files, and which kernel its kernel, its root and its initrd have."""

import hashlib
import re
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from steps import timeouts
from steps.clients import process
from steps.clients.image.files import cpio
from steps.contract.canonical import digest_bytes
from steps.contract.image import manifest
from steps.contract.image.manifest import INITRD, KERNEL, MANIFEST, PARTS, ROOT, ManifestError, Part
from steps.contract.stages.image_assemble import Assembled
from steps.errors import BadTask, StepError

_BOOT_SECTOR: Final = 0x200
_VERSION_AT: Final = 0x20E
_MAGIC: Final = b"HdrS"
_MAGIC_AT: Final = 0x202
_GZIP: Final = b"\x1f\x8b"
_LINUX: Final = re.compile(rb"Linux version ([0-9][\w.+~-]*)")
_IN_ROOT: Final = re.compile(r"(?:usr/)?lib/modules/([^/]+)/modules\.dep$", re.MULTILINE)
_THREADS: Final = 4
RACKED: Final = ("ice", "i40e", "ixgbe", "igb", "bnxt_en", "tg3")
"""Drivers of `initrds.DRIVERS` for cards that racked machines have, and virtual ones are not given."""


def read(folder: Path, key: str) -> Assembled:
    """An image as it lies there. What cannot be read is told in `problem`, what is missing is missing."""
    try:
        listed = manifest.decode((folder / MANIFEST).read_bytes())
        with ThreadPoolExecutor(max_workers=_THREADS) as beside:
            root, initrd = beside.submit(_of_root, folder / ROOT), beside.submit(_of_initrd, folder / INITRD)
            found = tuple(part for part in beside.map(lambda name: part_of(folder, name), PARTS) if part)
            return Assembled(
                key=key,
                manifest=digest_bytes((folder / MANIFEST).read_bytes()),
                found=found,
                listed=listed.parts,
                kernel=kernel_version(folder / KERNEL),
                root_modules=root.result(),
                initrd_modules=versions(initrd.result()),
                unracked=unracked(initrd.result()),
            )
    except (StepError, ManifestError, OSError) as error:
        return Assembled(key=key, problem=f"{folder.name}: {error}")


def part_of(folder: Path, name: str) -> Part | None:
    """One file, None where it is missing."""
    try:
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            return Part(name=name, digest=f"sha256:{found}", size=file.tell())
    except FileNotFoundError:
        return None


def kernel_version(path: Path) -> str:
    """The version that a kernel's file says of itself, also a gzipped one, as Ubuntu's for arm64 is; empty where it says none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ""
    if data[_MAGIC_AT : _MAGIC_AT + 4] == _MAGIC:
        at = int.from_bytes(data[_VERSION_AT : _VERSION_AT + 2], "little") + _BOOT_SECTOR
        return data[at : at + 256].split(b"\0")[0].split(b" ")[0].decode(errors="replace")
    found = _LINUX.search(_unzipped(data) if data.startswith(_GZIP) else data)
    return found[1].decode() if found else ""


def _unzipped(data: bytes) -> bytes:
    """What a gzip file holds; nothing where it is cut off or damaged."""
    try:
        return zlib.decompress(data, wbits=zlib.MAX_WBITS | 16)
    except zlib.error:
        return b""


def _of_root(path: Path) -> str:
    """Versions of the modules in a squashfs."""
    if not path.is_file():
        return ""
    done = process.run(["unsquashfs", "-lc", str(path), "usr/lib/modules"], seconds=timeouts.IMAGE_TOOL)
    if done.code != 0:
        raise BadTask(f"{path.name} is no whole squashfs: {' '.join(done.err.split())[-200:]}", hint="build the image anew")
    return ", ".join(sorted(_IN_ROOT.findall(done.out)))


def _of_initrd(path: Path) -> list[str]:
    return [member.path for member in cpio.read(path)] if path.is_file() else []


def versions(paths: Iterable[str]) -> str:
    """Versions of the modules in an initrd, of whose files these are the paths."""
    return ", ".join(sorted({found[1] for path in paths if (found := _IN_ROOT.search(path))}))


def unracked(paths: Iterable[str]) -> tuple[str, ...]:
    """The drivers of racked machines' network cards, where an initrd of these paths has none; where it has one, or no files at all,
    nothing is to be told."""
    names = {path.rpartition("/")[2].partition(".ko")[0].replace("-", "_") for path in paths}
    return () if not names or names.intersection(RACKED) else RACKED
