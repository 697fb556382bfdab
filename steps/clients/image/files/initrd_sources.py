"""What an initrd depends on: which paths of a root could change it. Pure.

An initrd is made by shell scripts of the root. They copy files, and look whether files are there; so the files that were copied
do not say all. What says all, on the safe side: every path that the scripts name, every path whose name is a word of theirs or the
name of something in the initrd (where programs, libraries and settings lie), the folders of their own settings, and which kernel
modules and firmware there are.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
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
_MERGED: Final = re.compile(r"(bin|sbin|lib\w*)(/|$)")


class Words(Struct, frozen=True):
    """What the scripts and the initrd say: names, paths that scripts name, and the files that are in both root and initrd."""

    names: tuple[str, ...]
    paths: tuple[str, ...]
    copied: tuple[str, ...]


def words(texts: Iterable[str], members: Mapping[str, int], there: Iterable[str]) -> Words:
    """The words of the scripts' texts, of an initrd's members (each with the number of its names), and which of those the root has
    too. One of several names that the root does not have is what busybox is called beside: no program of the root was looked for
    under it, unless a script says so, and then it is a word of the script."""
    names: set[str] = set()
    paths: set[str] = set()
    for text in texts:
        told = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        names |= set(_WORD.findall(told))
        paths |= {merged(path.strip("/.")) for path in _PATH.findall(told)}
    known = {merged(path): count for path, count in members.items()}
    copied = known.keys() & set(there)
    names |= {path.rpartition("/")[2] for path, count in known.items() if count == 1 or path in copied}
    return Words(tuple(sorted(names)), tuple(sorted(paths - set(_SYSTEM) - {""})), tuple(sorted(copied)))


def relevant(paths: Iterable[tuple[str, bool]], found: Words) -> Iterator[tuple[str, bool]]:
    """The paths that could change the initrd, and for each whether its content matters (else that it is there, and how large).
    `paths` come with whether they are folders, which are looked for by their whole path."""
    names, named, copied = set(found.names), set(found.paths), set(found.copied) - {*_MADE}
    for path, folder in paths:
        if path in copied or path in named or _below(path, _CONTENT):
            yield path, True
        elif _below(path, _NAMES):
            yield path, False
        elif not folder and path.rpartition("/")[2] in names and path not in _MADE and _SEARCHED.fullmatch(path):
            yield path, True


def merged(path: str) -> str:
    """A path where /bin, /sbin and /lib are links to those in /usr."""
    return f"usr/{path}" if _MERGED.match(path) else path


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
