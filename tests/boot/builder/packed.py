"""The root that an image's files hold, read in other ways than the builder's: by the kernel, and as a container runtime does."""

import hashlib
import itertools
import json
import os
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

KINDS = {tarfile.SYMTYPE: "link", tarfile.DIRTYPE: "folder", tarfile.REGTYPE: "file", tarfile.FIFOTYPE: "pipe"}
OF_A_MODE = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "pipe"}
XATTR = "SCHILY.xattr."
HIDDEN, OPAQUE = ".wh.", ".wh..wh..opq"


class Entry(NamedTuple):
    """One path: what it is, and of a file that has several names all of them."""

    kind: str
    mode: int
    owner: str
    time: int
    link: str = ""
    digest: str = ""
    attributes: tuple[tuple[str, bytes], ...] = ()
    names: tuple[str, ...] = ()


Root = dict[str, Entry]


def by_the_kernel(squashfs: Path, place: Path) -> Root:
    """A squashfs, mounted and walked; without its root folder, which no layer of an archive names."""
    place.mkdir()
    subprocess.run(["mount", "-t", "squashfs", "-o", "loop,ro", squashfs, place], check=True)
    try:
        paths = [Path(at, name) for at, folders, files in os.walk(place) for name in (*folders, *files)]
        found = {str(path.relative_to(place)): _mounted(path) for path in paths}
        return _named(found, {str(path.relative_to(place)): path.lstat().st_ino for path in paths})
    finally:
        subprocess.run(["umount", place], check=True)


def _mounted(path: Path) -> Entry:
    facts = path.lstat()
    kind = OF_A_MODE.get(stat.S_IFMT(facts.st_mode), "device")
    told = Entry(kind, stat.S_IMODE(facts.st_mode), f"{facts.st_uid}:{facts.st_gid}", int(facts.st_mtime))
    if kind in ("link", "device"):
        return told._replace(link=os.readlink(path) if kind == "link" else f"{os.major(facts.st_rdev)}:{os.minor(facts.st_rdev)}")
    marks = tuple((name, os.getxattr(path, name)) for name in sorted(os.listxattr(path)))
    return told._replace(attributes=marks, digest=hashlib.sha256(path.read_bytes()).hexdigest() if kind == "file" else "")


def of_layers(archive: Path) -> Root:
    """An OCI archive, layer laid upon layer; each must be the one that its digest says."""
    found: Root = {}
    files: dict[str, int] = {}
    number = itertools.count()
    with tarfile.open(archive) as whole:
        index = json.load(_blob(whole, "index.json"))
        chosen = json.load(_blob(whole, _place(index["manifests"][0]["digest"])))
        for layer in chosen["layers"]:
            data = _blob(whole, _place(layer["digest"])).read()
            assert layer["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
            with tempfile.TemporaryFile() as plain:
                subprocess.run(["zstd", "-dcq"], input=data, stdout=plain, check=True)
                plain.seek(0)
                _lay(plain, found, files, number)
    return _named(found, files)


def _place(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _blob(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    member = archive.extractfile(name)
    assert member is not None, name
    return member


def _lay(layer: IO[bytes], found: Root, files: dict[str, int], number: Iterator[int]) -> None:
    """Put a layer over what is there; `files`: which paths are the same file."""
    with tarfile.open(fileobj=layer) as members:
        for member in members:
            above, _, name = member.name.rpartition("/")
            if name.startswith(HIDDEN):
                gone = above if name == OPAQUE else "/".join(filter(None, (above, name.removeprefix(HIDDEN))))
                for path in [path for path in found if path.startswith(f"{gone}/") or (path == gone and name != OPAQUE)]:
                    del found[path]
            elif member.type == tarfile.LNKTYPE:
                found[member.name], files[member.name] = found[member.linkname], files[member.linkname]
            else:
                found[member.name], files[member.name] = _laid(members, member), next(number)


def _laid(members: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    kind = KINDS.get(member.type, "device")
    told = Entry(kind, member.mode, f"{member.uid}:{member.gid}", int(member.mtime))
    if kind in ("link", "device"):
        return told._replace(link=member.linkname if kind == "link" else f"{member.devmajor}:{member.devminor}")
    marks = {name.removeprefix(XATTR): text for name, text in member.pax_headers.items() if name.startswith(XATTR)}
    told = told._replace(attributes=tuple((name, os.fsencode(marks[name])) for name in sorted(marks)))
    data = members.extractfile(member) if kind == "file" else None
    return told._replace(digest=hashlib.file_digest(data, "sha256").hexdigest()) if data else told


def _named(found: Root, files: Mapping[str, int]) -> Root:
    """With all names of each file that has several."""
    names: dict[int, list[str]] = {}
    for path in sorted(found):
        if found[path].kind == "file":
            names.setdefault(files[path], []).append(path)
    several = {path: tuple(group) for group in names.values() if len(group) > 1 for path in group}
    return {path: entry._replace(names=several.get(path, ())) for path, entry in found.items()}
