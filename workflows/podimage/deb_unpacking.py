"""Unpack Debian packages into a tree, as `dpkg` does on a merged-/usr system, without running maintainer scripts.

Results of scripts that a step needs are made here as data: the links of merged /usr, the certificate bundle, and the database of
dpkg, from which scanners read what is installed. Users and name services are files of the recipe.
"""

import io
import subprocess
import tarfile
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from workflows.podimage import file_tree
from workflows.podimage.downloads import Cache
from workflows.podimage.errors import BuildError
from workflows.podimage.file_tree import EntryKind, ImageEntry, Tree
from workflows.podimage.pod_recipe import Deb, Debian

MERGED = ("bin", "lib", "lib64", "sbin")
"""Top folders that are links into /usr (Debian 12 and later)."""
_TOPS = ("", *(f"usr/{top}" for top in MERGED))
CERTIFICATES, BUNDLE = "usr/share/ca-certificates/", "etc/ssl/certs/ca-certificates.crt"
STATUS = "var/lib/dpkg/status"
INSTALLED = "Status: install ok installed"


def unpack_debs(debs: Iterable[Deb], settings: Debian, cache: Cache, below: Iterable[Deb] = ()) -> Tree:
    """Return the files of all packages as one tree; a later package wins. Packages are read from the cache.

    The database of dpkg also lists the packages of the layer `below`.
    """
    whole: Tree = {top: file_tree.link(f"usr/{top}") for top in MERGED}
    whole |= {f"usr/{top}": file_tree.folder() for top in MERGED}
    status = [_control(cache.read_package(deb.sha256)) for deb in below]
    for deb in debs:
        path = cache.read_package(deb.sha256)
        status.append(_control(path))
        whole |= _content(path, settings.leave_out)
    whole[STATUS] = file_tree.file("".join(status).encode())
    if bundle := b"".join(whole[path].data for path in sorted(whole) if path.startswith(CERTIFICATES) and path.endswith(".crt")):
        whole[BUNDLE] = file_tree.file(bundle)
    return whole


def _control(path: Path) -> str:
    name, _, rest = _dpkg_deb("--field", path).decode().partition("\n")
    return f"{name}\n{INSTALLED}\n{rest}\n"


def _content(path: Path, leave_out: tuple[str, ...]) -> Tree:
    tree: Tree = {}
    with tarfile.open(fileobj=io.BytesIO(_dpkg_deb("--fsys-tarfile", path))) as archive:
        for member in archive:
            name = _merged(file_tree.normal_path(member.name))
            if name not in _TOPS and not any(fnmatchcase(name, pattern) for pattern in leave_out):
                tree[name] = _entry(member, archive, tree)
    return tree


def _entry(member: tarfile.TarInfo, archive: tarfile.TarFile, earlier: Tree) -> ImageEntry:
    if member.isdir():
        return file_tree.folder(member.mode)
    if member.issym():
        return file_tree.link(member.linkname)
    if member.islnk():
        return earlier[_merged(file_tree.normal_path(member.linkname))]  # a second name of the same content is a copy of it
    content: IO[bytes] | None = archive.extractfile(member) if member.isfile() else None
    if content is None:
        raise BuildError(f"{member.name} is neither file, folder nor link")
    return ImageEntry(EntryKind.FILE, member.mode & file_tree.PERMISSIONS, content.read())


def _merged(path: str) -> str:
    return f"usr/{path}" if path.split("/", 1)[0] in MERGED else path


def _dpkg_deb(option: str, path: Path) -> bytes:
    try:
        done = subprocess.run(["dpkg-deb", option, str(path)], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise BuildError("dpkg-deb is not on this machine", hint="install dpkg") from error
    if done.returncode != 0:
        raise BuildError(f"{path.name} is no Debian package: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
