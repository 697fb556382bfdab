"""Detachment of a published release folder from the factory, the machine that built it.

It finds links and texts that lead into the factory or out of the published folder.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from steps.contract import plain_text

_OF_FACTORY = "of the factory"


class ExternalLink(Struct, frozen=True, kw_only=True):
    """A link, or an address in a file, that leads out of a published folder. `place` is the file's path below the folder's root."""

    place: str
    leads_to: str
    why: str

    @property
    def sentence(self) -> str:
        """Return the link in words: `boot/gpu.ipxe leads to http://…: …`."""
        return f"{self.place} leads to {self.leads_to}: {self.why}"


class Factory(Struct, frozen=True, kw_only=True):
    """Folders and hosts (names or addresses) of the machine that builds releases; nothing published may depend on them."""

    folders: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def has(self, address: str) -> bool:
        """Return True if a URL leads to a host of the factory."""
        host = urlsplit(address).hostname if "://" in address else ""
        return bool(host) and host in {name.lower() for name in self.hosts}


NO_FACTORY = Factory()
"""A factory without folders and hosts: only links that leave the published folder are found."""


def symbolic_links(root: str, targets: Mapping[str, str], factory: Factory) -> Iterator[ExternalLink]:
    """Yield the symbolic links (path below `root` → target) that lead out of the tree.

    Absolute links count even if they stay inside: they break when the tree is mounted at another path.
    """
    for place, target in sorted(targets.items()):
        if posixpath.isabs(target):
            inside = is_below(posixpath.normpath(target), posixpath.normpath(root))
            why = "an absolute link breaks where the tree is mounted elsewhere" if inside else explain(target, factory)
            yield ExternalLink(place=place, leads_to=target, why=why)
            continue
        reached = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        if reached == ".." or reached.startswith("../"):
            yield ExternalLink(place=place, leads_to=target, why="the link leads out of the tree")


def mentions(place: str, text: str, factory: Factory, known: Iterable[ExternalLink] = ()) -> Iterator[ExternalLink]:
    """Yield the hosts and folders of the factory that a text names outside its comments. Those within `known` links are skipped."""
    checked = "\n".join(_without_comments(text)).lower()
    for link in known:
        # a link that is reported already would be found again by its host or folder
        checked = checked.replace(link.leads_to.lower(), " ") if link.why.endswith(_OF_FACTORY) else checked
    for host in factory.hosts:
        if plain_text.names(checked, host.lower()):
            yield ExternalLink(place=place, leads_to=host, why="a host of the factory")
    for folder in factory.folders:
        if re.search(rf"(?<![\w.-]){re.escape(folder.lower())}(?![\w.-])", checked):
            yield ExternalLink(place=place, leads_to=folder, why="a folder of the factory")


def _without_comments(text: str) -> Iterator[str]:
    """Yield the lines of a text that are no comments: the first one is an instruction to the kernel if it begins with `#!`."""
    for number, line in enumerate(text.splitlines()):
        if not line.lstrip().startswith(("#", ";")) or (not number and line.startswith("#!")):
            yield line


def mentions_in(texts: Mapping[str, str], factory: Factory) -> Iterator[ExternalLink]:
    """Yield the hosts and folders of the factory that files (path → text) name outside of their comments."""
    for place, text in sorted(texts.items()):
        yield from mentions(place, text, factory)


def is_below(path: str, folder: str) -> bool:
    """Return True if a path or URL is the folder or lies below it."""
    return bool(folder) and (path == folder or path.startswith(folder.rstrip("/") + "/"))


def explain(target: str, factory: Factory) -> str:
    """Return the reason why a path or URL outside of the published folder is an external link."""
    if "://" in target:
        return "a host of the factory" if factory.has(target) else "not below the address of this tree"
    if any(is_below(posixpath.normpath(target), posixpath.normpath(folder)) for folder in factory.folders):
        return "a folder of the factory"
    return "outside of the tree"
