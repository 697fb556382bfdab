"""Reader of a packed image: digests of its files, and the versions of its kernel and of the modules in root and initrd."""

import hashlib
import re
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from steps import timeouts
from steps.clients import process
from steps.contract.canonical import digest_bytes
from steps.errors import BadTask, StepError
from steps.nodeimage.contract import image_manifest, root_checks
from steps.nodeimage.contract.image_manifest import INITRD, KERNEL, MANIFEST, PARTS, ROOT, ImageFile, ManifestError
from steps.nodeimage.files import initrd_archive
from steps.stages.image_assemble.contract import Assembled

# header of Linux' x86 boot protocol (docs.kernel.org/arch/x86/boot.html); its pointer to the version starts behind the boot sector
_BOOT_SECTOR: Final = 0x200
_VERSION_AT: Final = 0x20E
_MAGIC: Final = b"HdrS"
_MAGIC_AT: Final = 0x202
_GZIP: Final = b"\x1f\x8b"
_LINUX: Final = re.compile(rb"Linux version ([0-9][\w.+~-]*)")
_IN_ROOT: Final = re.compile(r"(?:usr/)?lib/modules/([^/]+)/modules\.dep$", re.MULTILINE)
RACKED: Final = ("ice", "i40e", "ixgbe", "igb", "bnxt_en", "tg3")
"""Drivers, a part of `initrds.DRIVERS`, for network cards that racked machines have and virtual ones do not."""


def read(folder: Path, key: str) -> Assembled:
    """Return what is in a packed image. An error is in `problem` of the result; missing files are left out."""
    try:
        listed = image_manifest.decode((folder / MANIFEST).read_bytes())
        with ThreadPoolExecutor(max_workers=2) as beside:
            root, initrd = beside.submit(_of_root, folder / ROOT), beside.submit(_of_initrd, folder / INITRD)
            return Assembled(
                key=key,
                manifest=digest_bytes((folder / MANIFEST).read_bytes()),
                found=parts_of(folder),
                listed=listed.parts,
                kernel=kernel_version(folder / KERNEL),
                root_modules=root.result(),
                initrd_modules=versions(initrd.result()),
                unracked=missing_network_drivers(initrd.result()),
            )
    except (StepError, ManifestError, OSError) as error:
        return Assembled(key=key, problem=f"{folder.name}: {error}")


def parts_of(folder: Path) -> tuple[ImageFile, ...]:
    """Return name, digest and size of the image files that exist in a folder, read in parallel."""
    with ThreadPoolExecutor(max_workers=len(PARTS)) as beside:
        return tuple(part for part in beside.map(lambda name: _part_of(folder, name), PARTS) if part)


def _part_of(folder: Path, name: str) -> ImageFile | None:
    try:
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return ImageFile(name=name, digest=f"sha256:{digest}", size=file.tell())
    except FileNotFoundError:
        return None


def kernel_version(path: Path) -> str:
    """Return the release in a kernel's file, such as `6.1.0-28-amd64`; empty if it has none or is missing.

    Gzipped kernels, such as Ubuntu's for arm64, are unpacked first.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ""
    if data[_MAGIC_AT : _MAGIC_AT + 4] == _MAGIC:
        at = int.from_bytes(data[_VERSION_AT : _VERSION_AT + 2], "little") + _BOOT_SECTOR
        return data[at : at + 256].split(b"\0")[0].split(b" ")[0].decode(errors="replace")
    match = _LINUX.search(_unzipped(data) if data.startswith(_GZIP) else data)
    return match[1].decode() if match else ""


def _unzipped(data: bytes) -> bytes:
    """Return the content of gzip data; empty if the data is cut off or damaged."""
    try:
        return zlib.decompress(data, wbits=zlib.MAX_WBITS | 16)
    except zlib.error:
        return b""


def _of_root(path: Path) -> str:
    """Return the kernel releases of the modules in a squashfs, separated by commas; empty without the file. Raises BadTask."""
    if not path.is_file():
        return ""
    done = process.run(["unsquashfs", "-lc", str(path), "usr/lib/modules"], seconds=timeouts.IMAGE_TOOL)
    if done.code != 0:
        raise BadTask(f"{path.name} is no whole squashfs: {' '.join(done.err.split())[-200:]}", hint="build the image anew")
    return ", ".join(sorted(_IN_ROOT.findall(done.out)))


def _of_initrd(path: Path) -> list[str]:
    return [member.path for member in initrd_archive.read(path)] if path.is_file() else []


def versions(paths: Iterable[str]) -> str:
    """Return the kernel releases of the modules in an initrd with these paths, separated by commas."""
    return ", ".join(sorted({match[1] for path in paths if (match := _IN_ROOT.search(path))}))


def missing_network_drivers(paths: Iterable[str]) -> tuple[str, ...]:
    """Return RACKED if an initrd with these paths has none of these drivers; empty if it has one, or if there are no paths."""
    names = {root_checks.module_name(path) for path in paths}
    return () if not names or names.intersection(RACKED) else RACKED
