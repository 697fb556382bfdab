"""Reader of an assembled tree into a listing for `link_checks`: one read of each file gives digest, links and traces."""

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps import timeouts
from steps.clients import process
from steps.errors import BadTask, NotUnderstood
from steps.softwarestack.contract.package_files import LISTING, ListedFile
from steps.softwarestack.contract.stack_input import PACKAGES
from steps.softwarestack.contract.stack_release import MODULES
from steps.softwarestack.tree import elf_links
from steps.softwarestack.tree.link_checks import SystemLibraries, TraceRules, TreeFile, TreeListing

LARGEST_TEXT: Final = 4 << 20
"""Bytes up to which a file is searched for traces of the factory; larger texts are data."""
MOST_TRACES: Final = 3
_CHUNK: Final = 1 << 20
_HEAD: Final = 8192
_LDCONFIG: Final = "/sbin/ldconfig"
_CACHED: Final = re.compile(r"^\s+(\S+) \([^)]*\) => (/\S+)$", re.MULTILINE)
_READ_BY_PROGRAMS: Final = re.compile(
    r"(?:^|/)(?:s?bin|libexec|etc)/|\.(?:pc|cmake|la|sh|csh|fish|pth|specs|conf|cfg)$|-config$|/python[\w.]*/site-packages/[^/]+\.py$"
)
"""Tree paths of texts that programs read. Others, such as headers, logs and notes of a build, may name its workspace."""
_NOTES: Final = re.compile(r"/(?:easybuild|\.spack)/")
"""Folders in which the build tools keep logs and recipes in a package."""


class _TreePaths(Struct, frozen=True):
    """Paths of a tree by kind: files with their modes and sizes, links with their targets, folders."""

    files: dict[str, os.stat_result]
    links: dict[str, str]
    folders: set[str]
    empty: list[str]


def scan(root: Path, rules: TraceRules, tops: Iterable[str] = (PACKAGES, MODULES)) -> TreeListing:
    """Return the listing of a tree, or of the folders `tops` in it.

    Raises BadTask for anything but files, links and folders, and for setuid and setgid files.
    """
    names = _TreePaths({}, {}, set(), [])
    for top in tops:
        _walk(root, top, names)
    paths = sorted(names.files)
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as beside:
        files = beside.map(lambda path: _file(root / path, path, names.files[path], rules), paths)
        listed = dict(zip(paths, files, strict=True))
    texts = {path: _text(root / path) for path in paths if path.startswith(f"{MODULES}/")}
    return TreeListing(
        files=listed, links=names.links, folders=frozenset(names.folders), modules=texts, empty_folders=tuple(sorted(names.empty))
    )


def package_files(listing: TreeListing, folder: str) -> tuple[ListedFile, ...]:
    """Return the files of one package's folder as `package_listing.list_package` does, without another read."""
    top = f"{PACKAGES}/{folder}/"
    files = [
        ListedFile(path=path[len(top) :], digest=file.digest, size=file.size, executable=file.executable)
        for path, file in listing.files.items()
        if path.startswith(top)
    ]
    files += [ListedFile(path=path[len(top) :], link=target) for path, target in listing.links.items() if path.startswith(top)]
    files += [ListedFile(path=path[len(top) :], folder=True) for path in listing.empty_folders if path.startswith(top)]
    return tuple(files)


def system_libraries() -> SystemLibraries:
    """Return the libraries that this machine's loader knows. Raises NotUnderstood if its cache cannot be read."""
    output = process.run([_LDCONFIG, "-p"], seconds=timeouts.STACK_PROGRAM).out
    cached = _CACHED.findall(output)
    if not cached:
        raise NotUnderstood(
            "ldconfig -p lists no library", hint="run ldconfig on this machine, or build in an image that has glibc"
        )
    folders = sorted({os.path.dirname(path) for _, path in cached})
    return SystemLibraries(names=frozenset(name for name, _ in cached), folders=tuple(folders))


def _walk(root: Path, top: str, names: _TreePaths) -> None:
    folders = [top]
    while folders:
        folder = folders.pop()
        names.folders.add(folder)
        with os.scandir(root / folder) as entries:
            rows = [entry for entry in entries if f"{folder}/{entry.name}".split("/", 2)[2:] != [LISTING]]
        if not rows and folder.count("/") > 1:
            names.empty.append(folder)
        for entry in rows:
            path = f"{folder}/{entry.name}"
            facts = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                names.links[path] = os.readlink(entry.path)
            elif entry.is_dir():
                folders.append(path)
            else:
                _require_plain(path, facts.st_mode)
                names.files[path] = facts


def _require_plain(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise BadTask(f"{path} is no file, link or folder", hint="a package holds nothing else; see who made it")
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise BadTask(f"{path} is setuid or setgid", hint="install the package without these rights")


def _file(place: Path, path: str, facts: os.stat_result, rules: TraceRules) -> TreeFile:
    executable = bool(facts.st_mode & stat.S_IXUSR)
    with place.open("rb") as stream:
        head = stream.read(_HEAD)
        is_text = b"\0" not in head
        wanted = is_text and facts.st_size <= LARGEST_TEXT and _is_read(path, executable)
        digest, kept = hashlib.sha256(head), [head]
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            kept += [chunk] if wanted else []
        links, problem = _elf(stream.fileno()) if elf_links.is_elf(head) else (None, "")
    return TreeFile(
        digest=f"sha256:{digest.hexdigest()}",
        size=facts.st_size,
        executable=executable,
        shebang=_first_line(head) if head.startswith(b"#!") and is_text else "",
        links=links,
        elf_problem=problem,
        traces=tuple(rules.traces(path, b"".join(kept).decode(errors="replace")))[:MOST_TRACES] if wanted else (),
    )


def _is_read(path: str, executable: bool) -> bool:
    return not _NOTES.search(path) and (executable or path.startswith(f"{MODULES}/") or bool(_READ_BY_PROGRAMS.search(path)))


def _first_line(head: bytes) -> str:
    return head[2:].partition(b"\n")[0].decode(errors="replace").strip()


def _elf(handle: int) -> tuple[elf_links.ElfFacts | None, str]:
    try:
        return elf_links.facts(lambda offset, size: os.pread(handle, size, offset)), ""
    except elf_links.ElfError as error:
        return None, str(error)


def _text(place: Path) -> str:
    with place.open("rb") as stream:
        return stream.read(LARGEST_TEXT).decode(errors="replace")
