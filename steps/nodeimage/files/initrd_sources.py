"""Sources of an initrd: the paths of a root file system whose change could change the initrd that is made from it. Pure.

An initrd is made by shell scripts of the root, which copy files and test for others, so the copied files alone do not tell. These
paths do, on the safe side:

- every path that the scripts name, with all in it if it is a folder, and every path that begins like a pattern of theirs
- every path whose name is a word of the scripts or the name of something in the initrd, where programs, libraries and settings lie
- all in a folder that was copied whole, however a script came to its name, and the folders of the scripts' own settings
- the names of all kernel modules and firmware files
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
"""Folders of which only the file names matter; the content of copied files is compared anyway."""
_SEARCHED: Final = re.compile(r"(usr/(local/)?(s?bin|lib\w*(/[^/]+-linux-gnu\w*)?)/[^/]+|etc/.+)")
"""Pattern of the paths where scripts look up a name: programs, libraries in the linker's default folders, and settings."""
_MADE: Final = ("etc/ld.so.cache",)
"""Paths that every initrd makes anew; what they say about libraries is in the names of the libraries."""
_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_PATH: Final = re.compile(r"/[A-Za-z0-9_][\w./+-]*")
_BEGINNING: Final = re.compile(rf"{_PATH.pattern}(?=[*?\[$])")
"""Start of a path in a script that ends with a pattern or a variable."""
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
"""Paths in scripts that are ignored: every script names them, and they are too large to tell anything, or empty before a boot."""
_LARGE: Final = re.compile(
    r"[^/]+|usr/(local|share|s?bin|lib\w*(/systemd|/modules|/firmware|/[^/]+-linux-gnu\w*)?)|var/(cache|lib)"
)
"""Folders from which scripts take only a few files: a script that names one does not need all in it."""
_MERGED: Final = re.compile(r"(bin|sbin|lib\w*)(/|$)")


class Words(Struct, frozen=True):
    """Words by which `relevant` finds the sources of an initrd: `names` and `paths` in scripts, and `beginnings` of path patterns.

    `copied` are paths both in root and initrd, `whole` folders that the initrd has completely.
    """

    names: tuple[str, ...]
    paths: tuple[str, ...]
    beginnings: tuple[str, ...]
    copied: tuple[str, ...]
    whole: tuple[str, ...]


def words(texts: Iterable[str], members: Mapping[str, int], there: Iterable[str]) -> Words:
    """Return the words of the scripts' `texts` and of an initrd's `members` (path → number of names); `there` are the root's paths.

    A further name of a file that the root does not have is a name of busybox: no program of the root was looked up under it, unless
    a script says so, and then it is a word of the script.
    """
    names: set[str] = set()
    paths: set[str] = set()
    beginnings: set[str] = set()
    for text in texts:
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        names |= set(_WORD.findall(code))
        paths |= {merged_path(path.strip("/.")) for path in _PATH.findall(code)}
        beginnings |= {merged_path(path.lstrip("/")) for path in _BEGINNING.findall(code)}
    known, there = {merged_path(path): count for path, count in members.items()}, set(there)
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
    """Return True if the beginning of a path matches few paths: it ends within a name, below another folder than the system's."""
    return "/" in beginning and not beginning.endswith("/") and not _LARGE.fullmatch(beginning.rstrip("."))


def _whole(copied: AbstractSet[str], there: AbstractSet[str]) -> AbstractSet[str]:
    """Return the folders that the initrd has completely, except those of which every name or content matters anyway."""
    whole = {_folder(path) for path in copied} - {_folder(path) for path in there - copied}
    return {folder for folder in whole if folder and not _LARGE.fullmatch(folder) and not _below(folder, (*_NAMES, *_CONTENT))}


def relevant(paths: Iterable[tuple[str, bool]], sources: Words) -> Iterator[tuple[str, bool]]:
    """Yield (path, True) for paths whose content could change the initrd, (path, False) for those whose existence or size could.

    `paths` come with True for folders, whose names tell nothing, because folders are looked up by their whole path.
    """
    names, named, copied = set(sources.names), set(sources.paths), set(sources.copied) - {*_MADE}
    read = {path for path in named if not _LARGE.fullmatch(path)} | set(sources.whole)
    for path, folder in paths:
        known = path in copied or path in named or _below(path, _CONTENT)
        if known or path.startswith(sources.beginnings) or _is_in(path, read):
            yield path, True
        elif _below(path, _NAMES):
            yield path, False
        elif not folder and path.rpartition("/")[2] in names and path not in _MADE and _SEARCHED.fullmatch(path):
            yield path, True


def merged_path(path: str) -> str:
    """Return a path as it is in a root whose /bin, /sbin and /lib are links into /usr, such as `usr/bin/sh` for `bin/sh`."""
    return f"usr/{path}" if _MERGED.match(path) else path


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _is_in(path: str, folders: AbstractSet[str]) -> bool:
    """Return True if a path lies in one of many folders, at any depth."""
    while path := _folder(path):
        if path in folders:
            return True
    return False


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
