"""Read a build cache of Spack in a folder: which packages it holds.

`spack buildcache check` cannot tell: it takes installed packages alone, and looks for unsigned metadata alone. So the files are
read as Spack writes them: until 0.23 a metadata file and a tarball below `build_cache`; since 1.0 a manifest below `v3/manifests`
that names its parts by digest. A package counts only if its metadata and its tarball are there. Source:
lib/spack/spack/binary_distribution.py and url_buildcache.py of https://github.com/spack/spack.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON
from workflows.softwarestack.build_graph import LockError

_HASH: Final = r"(?P<hash>[a-z2-7]{32})"
_METADATA: Final = re.compile(rf"(?P<stem>.+-{_HASH})\.spec\.json(?:\.sig)?")
_MANIFEST: Final = re.compile(rf".+-{_HASH}\.spec\.manifest\.json")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_LARGEST_MANIFEST: Final = 4 << 20


class _TarballBlob(Struct, frozen=True):
    checksum: str = ""


class _CacheManifest(Struct, frozen=True):
    data: tuple[_TarballBlob, ...] = ()


def cached_hashes(folder: Path) -> frozenset[str]:
    """Return the hashes of all packages that a cache folder holds whole. Raises `LockError` if there is no such folder."""
    if not folder.is_dir():
        raise LockError(f"{folder}: it is no folder", "give the folder of a build cache, the one that has build_cache or v3 in it")
    try:
        return frozenset((*_until_0_23(folder / "build_cache"), *_since_1_0(folder)))
    except OSError as error:
        raise LockError(f"{error.filename}: cannot be read: {error.strerror}", "make the cache readable for this user") from error


def _until_0_23(folder: Path) -> Iterator[str]:
    """Yield hashes of packages with metadata and a tarball. Tarballs lie in folders by architecture, compiler, and package."""
    if not folder.is_dir():
        return
    tarballs = {path.name.removesuffix(".spack") for path in folder.glob("*/*/*/*.spack")}
    for path in folder.iterdir():
        match = _METADATA.fullmatch(path.name)
        if match and match["stem"] in tarballs:
            yield match["hash"]


def _since_1_0(folder: Path) -> Iterator[str]:
    for path in (folder / "v3" / "manifests" / "spec").glob("*/*.json"):
        match = _MANIFEST.fullmatch(path.name)
        if not match:
            continue
        checksums = _checksums(path)
        if checksums and all((folder / "blobs" / "sha256" / sum_[:2] / sum_).is_file() for sum_ in checksums):
            yield match["hash"]


def _checksums(path: Path) -> list[str]:
    """Return the digests of a manifest's parts; empty if the manifest is none, so that its package counts as missing."""
    with path.open("rb") as file:
        content = file.read(_LARGEST_MANIFEST)
    start, end = content.find(b"{"), content.rfind(b"}")  # a signed manifest is clear-signed text around the JSON
    try:
        manifest = msgspec.json.decode(content[start : end + 1], type=_CacheManifest)
    except UNREADABLE_JSON:
        return []
    checksums = [blob.checksum for blob in manifest.data]
    return checksums if all(_SHA256.fullmatch(checksum) for checksum in checksums) else []
