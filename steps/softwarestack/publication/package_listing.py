"""Reads the files of an installed package into the list by which copies of it are compared."""

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from steps.errors import BadTask
from steps.softwarestack.contract.package_files import LISTING, MOST_LISTING, ListedFile, PackageListError


def list_package(folder: Path) -> tuple[ListedFile, ...]:
    """Return the files, links and empty folders below a package's folder, with digests. Raises BadTask for any other kind of file.

    Files that run with other rights (setuid, setgid) are refused as well: a shared folder must not give them away.
    """
    return tuple(_with_digest(folder, file) for file in list_names(folder))


def list_names(folder: Path) -> Iterator[ListedFile]:
    """Yield the files, links and empty folders below a package's folder, without digests, as `list_package` does."""
    for place, folders, names in os.walk(folder):
        base = Path(place)
        folders.sort()
        links = [name for name in folders if (base / name).is_symlink()]
        for name in sorted((*names, *links)):
            path = str((base / name).relative_to(folder))
            if path != LISTING:
                yield _entry(folder, path)
        if not folders and not names and base != folder:
            yield ListedFile(path=str(base.relative_to(folder)), folder=True)


def read_list(folder: Path) -> bytes:
    """Return the bytes of the list in a package's folder. Raises OSError, and PackageListError for a list that is too large."""
    with (folder / LISTING).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_LISTING:
            raise PackageListError(f"{LISTING}: has {size} bytes, more than the {MOST_LISTING} that a list may have")
        return file.read()


def file_digest(path: Path) -> str:
    """Return the digest `sha256:…` of a file's bytes."""
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _entry(folder: Path, path: str) -> ListedFile:
    facts = (folder / path).lstat()
    if stat.S_ISLNK(facts.st_mode):
        return ListedFile(path=path, link=os.readlink(folder / path))
    if not stat.S_ISREG(facts.st_mode):
        raise BadTask(f"{folder / path} is no file, link or folder", hint="a package holds nothing else; see who made it")
    if facts.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise BadTask(f"{folder / path} is setuid or setgid", hint="install the package without these rights")
    return ListedFile(path=path, size=facts.st_size, executable=bool(facts.st_mode & stat.S_IXUSR))


def _with_digest(folder: Path, file: ListedFile) -> ListedFile:
    if file.link or file.folder:
        return file
    return msgspec.structs.replace(file, digest=file_digest(folder / file.path))
