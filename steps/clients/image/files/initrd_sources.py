"""What an initrd depends on: which paths of a root could change it. Pure.

An initrd is made by shell scripts of the root. They copy files, and look whether files are there; so the files that were copied
do not say all. What says all, on the safe side: every path that the scripts name, and all in it where that is a folder; every path
that begins as a pattern of theirs does; every path whose name is a word of theirs or the name of something in the initrd (where
programs, libraries and settings lie); all in a folder that was copied whole, by whatever name a script came to it; the folders of
their own settings; and which kernel modules and firmware there are.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct

PROGRAMS: Final = ("usr/share/initramfs-tools", "etc/initramfs-tools", "usr/sbin/mkinitramfs")
_CONTENT: Final = (
    *PROGRAMS,
    "etc/modprobe.d",
    "usr/lib/modprobe.d",
    "etc/udev",
    "usr/lib/udev",
    "etc/ld.so.conf.d",
    "usr/lib/live",
    "usr/share/live",
    "boot",
)
_NAMES: Final = ("usr/lib/modules", "usr/lib/firmware")
"""Of these it matters what there is; the content of those that were copied is looked at beside."""
_SEARCHED: Final = re.compile(r"(usr/(local/)?(s?bin|lib\w*(/[^/]+-linux-gnu\w*)?)/[^/]+|etc/.+)")
"""Where a name is looked up: programs on the path, libraries where the linker looks without being told, and settings."""
_MADE: Final = ("etc/ld.so.cache",)
"""Made anew in every initrd; what it says of libraries is in their names."""
_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_PATH: Final = re.compile(r"/[A-Za-z0-9_][\w./+-]*")
_BEGINNING: Final = re.compile(rf"{_PATH.pattern}(?=[*?\[$])")
"""Of a name that ends with a pattern or a variable."""
_SYSTEM: Final = (
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "var/tmp",
    "usr",
    "etc",
    "bin",
    "sbin",
    "lib",
    "var",
    "usr/bin",
    "usr/sbin",
    "usr/lib",
)
"""Named by every script, and too large to tell anything, or not there before the node runs."""
_LARGE: Final = re.compile(
    r"[^/]+|usr/(local|share|s?bin|lib\w*(/systemd|/modules|/firmware|/[^/]+-linux-gnu\w*)?)|var/(cache|lib)"
)
"""Folders of which scripts take a little: to name one does not say that all in it matters."""
_MERGED: Final = re.compile(r"(bin|sbin|lib\w*)(/|$)")


class Words(Struct, frozen=True):
    """What the scripts and the initrd say: names, paths that scripts name, what patterns of theirs begin with, what is in both root
    and initrd, and the folders of which all that the root has is in the initrd."""

    names: tuple[str, ...]
    paths: tuple[str, ...]
    beginnings: tuple[str, ...]
    copied: tuple[str, ...]
    whole: tuple[str, ...]


def words(texts: Iterable[str], members: Mapping[str, int], there: Iterable[str]) -> Words:
    """The words of the scripts' texts, of an initrd's members (each with the number of its names), and which of those the root has
    too. One of several names that the root does not have is what busybox is called beside: no program of the root was looked for
    under it, unless a script says so, and then it is a word of the script."""
    names: set[str] = set()
    paths: set[str] = set()
    beginnings: set[str] = set()
    for text in texts:
        told = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        names |= set(_WORD.findall(told))
        paths |= {merged(path.strip("/.")) for path in _PATH.findall(told)}
        beginnings |= {merged(path.lstrip("/")) for path in _BEGINNING.findall(told)}
    known, there = {merged(path): count for path, count in members.items()}, set(there)
    copied = known.keys() & there
    names |= {path.rpartition("/")[2] for path, count in known.items() if count == 1 or path in copied}
    return Words(
        names=tuple(sorted(names)),
        paths=tuple(sorted(paths - set(_SYSTEM) - {""})),
        beginnings=tuple(sorted(path for path in beginnings if _is_narrow(path))),
        copied=tuple(sorted(copied)),
        whole=tuple(sorted(_whole(copied, there))),
    )


def _is_narrow(beginning: str) -> bool:
    """Whether a name's beginning tells anything: not that of a folder, which is a path by itself, nor of one of the system's."""
    return "/" in beginning and not beginning.endswith("/") and not _LARGE.fullmatch(beginning.rstrip("."))


def _whole(copied: AbstractSet[str], there: AbstractSet[str]) -> AbstractSet[str]:
    """Folders of which the initrd has all, but those of which the names or all contents matter anyhow."""
    found = {_folder(path) for path in copied} - {_folder(path) for path in there - copied}
    return {folder for folder in found if folder and not _LARGE.fullmatch(folder) and not _below(folder, (*_NAMES, *_CONTENT))}


def relevant(paths: Iterable[tuple[str, bool]], found: Words) -> Iterator[tuple[str, bool]]:
    """The paths that could change the initrd, and for each whether its content matters (else that it is there, and how large).
    `paths` come with whether they are folders, whose own names tell nothing: they are looked for by their whole path."""
    names, named, copied = set(found.names), set(found.paths), set(found.copied) - {*_MADE}
    read = {path for path in named if not _LARGE.fullmatch(path)} | set(found.whole)
    for path, folder in paths:
        known = path in copied or path in named or _below(path, _CONTENT)
        if known or path.startswith(found.beginnings) or _is_in(path, read):
            yield path, True
        elif _below(path, _NAMES):
            yield path, False
        elif not folder and path.rpartition("/")[2] in names and path not in _MADE and _SEARCHED.fullmatch(path):
            yield path, True


def merged(path: str) -> str:
    """A path where /bin, /sbin and /lib are links to those in /usr."""
    return f"usr/{path}" if _MERGED.match(path) else path


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _is_in(path: str, folders: AbstractSet[str]) -> bool:
    """Whether a path lies in one of many folders, at any depth."""
    while path := _folder(path):
        if path in folders:
            return True
    return False


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
