"""List of the files of an installed package, by which two copies of it are compared. Pure.

The list lies in the package's own folder (`LISTING`), so that both get their place by one rename. Owner and times are not in it.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON, canonical, digest_bytes

LISTING: Final = ".bringup-files.json"
"""Name of the file with the list, in the package's folder; the list does not name itself."""
MOST_LISTING: Final = 512 << 20
"""Bytes above which no list is read (`package_listing.read_list`); a package of a million files has fewer."""


class PackageListError(ValueError):
    """Error: a file is no list of a package's files that this version can read; the message says why."""


class ListedFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """File, symbolic link or empty folder of a package; `path` is relative to the package's folder.

    A file has `digest` (`sha256:…`), `size` and `executable`, a link its target in `link`; an empty folder has `folder` alone.
    Folders that hold something are not listed.
    """

    path: str
    digest: str = ""
    size: int = 0
    executable: bool = False
    link: str = ""
    folder: bool = False


def encode(files: Iterable[ListedFile]) -> bytes:
    """Return the bytes of a package's list, in the order of paths."""
    return canonical(sorted(files, key=attrgetter("path"))) + b"\n"


def digest(files: Iterable[ListedFile]) -> str:
    """Return the digest of a package's list, which stands for the content of the package."""
    return digest_bytes(encode(files))


def decode(data: bytes) -> tuple[ListedFile, ...]:
    """Return the files in the bytes of a package's list. Raises PackageListError, for paths that lead out of the package too."""
    try:
        files = msgspec.json.decode(data, type=tuple[ListedFile, ...])
    except UNREADABLE_JSON as error:
        raise PackageListError(f"{LISTING}: {error}") from error
    for file in files:
        if any(part in ("", ".", "..") for part in file.path.split("/")):
            raise PackageListError(f"{LISTING}: {file.path[:80]!r} is no path within a package")
    return files
