"""Whether a published tree stands by itself: none of its links, scripts and manifests leads into the factory or out of the tree."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from steps.contract import plain
from steps.contract.image import published
from steps.contract.image.booting import REPORT_ARGUMENT

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>\\]+", re.IGNORECASE)
_LOADERS = ("kernel", "initrd", "module", "chain", "imgfetch", "imgload", "imgexec", "boot")
_WITH_VALUE = ("--name", "-n", "--timeout", "-t")
_FETCHERS = ("fetch", "httpfs", "ftpfs", "root", "netroot", "nfsroot", "live", "url", "ks", "inst.repo")
"""Kernel arguments that name what is loaded."""
_OF_FACTORY = "of the factory"


class Outside(Struct, frozen=True, kw_only=True):
    """One thing that leads out: the file or link (relative to the root of the tree), and where it leads, as it stands there."""

    place: str
    leads_to: str
    why: str

    @property
    def sentence(self) -> str:
        """`boot/gpu.ipxe leads to http://…: …`."""
        return f"{self.place} leads to {self.leads_to}: {self.why}"


class Factory(Struct, frozen=True, kw_only=True):
    """What belongs to the factory: folders and hosts (names or addresses)."""

    folders: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def has(self, address: str) -> bool:
        """Whether an address leads to one of its hosts."""
        host = urlsplit(address).hostname if "://" in address else ""
        return bool(host) and host in {one.lower() for one in self.hosts}


def links(root: str, found: Mapping[str, str], factory: Factory) -> Iterator[Outside]:
    """Symbolic links (path below `root` → target) that lead out of it, or are absolute: another mount breaks these."""
    for place, target in sorted(found.items()):
        if posixpath.isabs(target):
            inside = _below(posixpath.normpath(target), posixpath.normpath(root))
            why = "an absolute link breaks where the tree is mounted elsewhere" if inside else _why(target, factory)
            yield Outside(place=place, leads_to=target, why=why)
            continue
        reached = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        if reached == ".." or reached.startswith("../"):
            yield Outside(place=place, leads_to=target, why="the link leads out of the tree")


def scripts(url: str, found: Mapping[str, str], files: Iterable[str], factory: Factory) -> Iterator[Outside]:
    """Boot scripts (path → text) whose addresses are not below the tree's own URL, or name a file that the tree has not; and those
    with a word of the factory anywhere, as in a kernel argument."""
    have = set(files)
    for place, text in sorted(found.items()):
        told = [one for address in addresses(text) for one in _address(place, address, url.rstrip("/"), have, factory)]
        heard = (address for address in reporting(text) if factory.has(address))
        told += [Outside(place=place, leads_to=address, why="nodes report to a host of the factory") for address in heard]
        yield from told
        yield from _words(place, "\n".join(line for line in text.splitlines() if line.split()[:1] != ["echo"]), factory, told)


def manifests(found: Mapping[str, str], factory: Factory) -> Iterator[Outside]:
    """Manifests (path → text) that name a folder or a host of the factory. No field of one names a place that anything is loaded
    from: an address in a kernel argument leads somewhere where a boot script has it, if it is one of those."""
    for place, text in sorted(found.items()):
        yield from _words(place, text, factory)


def fetched(arguments: Iterable[str]) -> tuple[str, ...]:
    """What the kernel or the initial RAM disk is told to fetch by these arguments, each once."""
    words = tuple(arguments)
    named = (word.split("=", 1) for word in words if "=" in word)
    found = [value for name, value in named if name in _FETCHERS and _is_address(value)]
    return tuple(dict.fromkeys([*found, *(word for word in words if _URL.fullmatch(word))]))


def fetched_elsewhere(arguments: Iterable[str], url: str) -> tuple[str, ...]:
    """Those of them that no tree at this URL can have."""
    return tuple(address for address in fetched(arguments) if not _below(address, url.rstrip("/")))


def settings(found: Mapping[str, str], factory: Factory) -> Iterator[Outside]:
    """Settings of a packed root (path → text) that name a host or a folder of the factory; comments name nothing."""
    for place, text in sorted(found.items()):
        yield from _words(place, text, factory)


def _words(place: str, text: str, factory: Factory, known: Iterable[Outside] = ()) -> Iterator[Outside]:
    """Hosts and folders of the factory that a text names outside of its comments, but for those within what is `known` already."""
    told = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", ";"))).lower()
    for one in known:
        told = told.replace(one.leads_to.lower(), " ") if one.why.endswith(_OF_FACTORY) else told
    for host in factory.hosts:
        if plain.names(told, host.lower()):
            yield Outside(place=place, leads_to=host, why="a host of the factory")
    for folder in factory.folders:
        if re.search(rf"(?<![\w.-]){re.escape(folder.lower())}(?![\w.-])", told):
            yield Outside(place=place, leads_to=folder, why="a folder of the factory")


def addresses(text: str) -> tuple[str, ...]:
    """What a boot script loads, in its order, each once: what iPXE's commands name, and what the kernel is told to fetch. Where a
    node sends its report is none of these."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#") or words[0] == "echo":
            continue
        if words[0] in _LOADERS:
            found.update(dict.fromkeys(_operand(words[1:])))
        found.update(dict.fromkeys(fetched(words)))
    return tuple(found)


def reporting(text: str) -> tuple[str, ...]:
    """Where a boot script tells nodes to send their report."""
    start = f"{REPORT_ARGUMENT}="
    return tuple(word.removeprefix(start) for line in text.splitlines() for word in line.split() if word.startswith(start))


def _operand(words: list[str]) -> Iterator[str]:
    """The first word after a command's options."""
    skip = False
    for word in words:
        if not skip and not word.startswith("-"):
            if word != "||":
                yield word
            return
        skip = word in _WITH_VALUE


def _is_address(value: str) -> bool:
    return "://" in value or ":/" in value or (value.startswith("/") and not value.startswith("/dev/"))


def bases(texts_of_entries: Iterable[str], image: str) -> tuple[str, ...]:
    """The URLs of trees that scripts of an image lead to: one, where all is well. The URL may have the image's name in it."""
    marks = [f"/{image}/{below}/" for below in (published.VERSIONS, published.CURRENT)]
    found = {one[:cut] for text in texts_of_entries for one in addresses(text) if (cut := max(map(one.rfind, marks))) >= 0}
    return tuple(sorted(found))


def _address(place: str, address: str, url: str, have: set[str], factory: Factory) -> Iterator[Outside]:
    if "://" not in address:
        yield Outside(place=place, leads_to=address, why="no address of its own: where it leads depends on who serves it")
    elif factory.has(address) or not _below(address, url):
        yield Outside(place=place, leads_to=address, why=_why(address, factory))
    else:
        path = unquote(address[len(url) :]).lstrip("/")
        if posixpath.normpath(path) != path or path.startswith(".."):
            yield Outside(place=place, leads_to=address, why="the path leads out of the tree")
        elif path not in have and "${" not in path:
            yield Outside(place=place, leads_to=address, why="the tree has no such file")


def _below(path: str, folder: str) -> bool:
    return bool(folder) and (path == folder or path.startswith(folder.rstrip("/") + "/"))


def _why(target: str, factory: Factory) -> str:
    if "://" in target:
        return "a host of the factory" if factory.has(target) else "not below the address of this tree"
    if any(_below(posixpath.normpath(target), posixpath.normpath(folder)) for folder in factory.folders):
        return "a folder of the factory"
    return "outside of the tree"
