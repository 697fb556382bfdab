"""Reader of the addresses in boot scripts and kernel arguments, which finds those that lead out of the published release folder.

Pure.
"""

import itertools
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

from steps.contract import release_layout
from steps.contract.detachment import ExternalLink, Factory, explain, is_below, mentions
from steps.nodeimage.contract.boot_tests import REPORT_ARGUMENT

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>\\]+", re.IGNORECASE)
_LOADERS = ("kernel", "initrd", "module", "chain", "imgfetch", "imgload", "imgexec", "boot")
_WITH_VALUE = ("--name", "-n", "--timeout", "-t", "--signer", "-s")
_FETCHERS = ("fetch", "httpfs", "ftpfs", "root", "netroot", "nfsroot", "live", "url", "ks", "inst.repo")
"""Kernel arguments whose value is the address of something that the kernel or initrd loads."""


def leading_out(url: str, texts: Mapping[str, str], files: Iterable[str], factory: Factory) -> Iterator[ExternalLink]:
    """Yield the links that lead out of a release folder in its boot scripts `texts` (path → text).

    An address leads out if it is not below the folder's `url`, or if `files` lacks its path. A host or folder of the factory counts
    anywhere in a script, as in a kernel argument or in the address that nodes report to.
    """
    have = set(files)
    for place, text in sorted(texts.items()):
        links = [link for address in addresses(text) for link in _address(place, address, url.rstrip("/"), have, factory)]
        reported = (address for address in report_addresses(text) if factory.has(address))
        links += [ExternalLink(place=place, leads_to=address, why="nodes report to a host of the factory") for address in reported]
        yield from links
        yield from mentions(place, "\n".join(line for line in text.splitlines() if line.split()[:1] != ["echo"]), factory, links)


def fetched_addresses(arguments: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses that these kernel arguments make the kernel or the initial RAM disk fetch, each once."""
    words = tuple(arguments)
    named = (word.split("=", 1) for word in words if "=" in word)
    values = [value for name, value in named if name in _FETCHERS and _is_address(value)]
    return tuple(dict.fromkeys([*values, *(word for word in words if _URL.fullmatch(word))]))


def fetched_elsewhere(arguments: Iterable[str], url: str) -> tuple[str, ...]:
    """Return the addresses in kernel arguments that are fetched and not below `url`, the URL of a release folder."""
    return tuple(address for address in fetched_addresses(arguments) if not is_below(address, url.rstrip("/")))


def addresses(text: str) -> tuple[str, ...]:
    """Return the addresses that a boot script loads, in order, each once: operands of iPXE's commands, and kernel arguments.

    The address that nodes report to is not among them.
    """
    loaded: list[str] = []
    images: set[str] = set()
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#") or words[0] == "echo":
            continue
        if words[0] in _LOADERS:
            operands = _operands(words[1:])[:1]
            loaded += operands
            images |= _image_names(words, operands)
        if words[0] == "imgverify":  # an image and its signature: names of loaded images, or what iPXE loads for it
            loaded += [operand for operand in _operands(words[1:])[:2] if operand not in images]
        loaded += fetched_addresses(words)
    return tuple(dict.fromkeys(loaded))


def report_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses to which a boot script tells nodes to send their report."""
    start = f"{REPORT_ARGUMENT}="
    return tuple(word.removeprefix(start) for line in text.splitlines() for word in line.split() if word.startswith(start))


def tree_urls(texts: Iterable[str], image: str) -> tuple[str, ...]:
    """Return the URLs of the release folders that an image's boot scripts load from, sorted; a sound folder has exactly one."""
    marks = [f"/{image}/{below}/" for below in (release_layout.VERSIONS, release_layout.CURRENT)]
    # The last mark counts: the tree's own URL may have the image's name in it.
    urls = {address[:cut] for text in texts for address in addresses(text) if (cut := max(map(address.rfind, marks))) >= 0}
    return tuple(sorted(urls))


def _operands(words: list[str]) -> list[str]:
    """Return the words of an iPXE command that are no options and no values of options, up to the next command."""
    operands: list[str] = []
    is_value = False
    for word in words:
        if word in ("||", "&&"):
            break
        if not is_value and not word.startswith("-"):
            operands.append(word)
        is_value = not is_value and word in _WITH_VALUE
    return operands


def _image_names(words: list[str], operands: list[str]) -> set[str]:
    """Return the name by which a later command of iPXE knows the image of a command: that of an option, else of the file."""
    options = words[: words.index(operands[0])] if operands else []
    named = {after for word, after in itertools.pairwise(options) if word in ("--name", "-n")}
    named |= {word.removeprefix("--name=") for word in options if word.startswith("--name=")}
    return named or {posixpath.basename(operand) for operand in operands}


def _is_address(value: str) -> bool:
    # `nfsroot=HOST:/PATH` and a local path are addresses too, but a device such as root=/dev/sda1 is on the node itself.
    return "://" in value or ":/" in value or (value.startswith("/") and not value.startswith("/dev/"))


def _address(place: str, address: str, url: str, have: set[str], factory: Factory) -> Iterator[ExternalLink]:
    if "://" not in address:
        yield ExternalLink(place=place, leads_to=address, why="no address of its own: where it leads depends on who serves it")
    elif factory.has(address) or not is_below(address, url):
        yield ExternalLink(place=place, leads_to=address, why=explain(address, factory))
    else:
        path = unquote(address[len(url) :]).lstrip("/")
        if posixpath.normpath(path) != path or path.startswith(".."):
            yield ExternalLink(place=place, leads_to=address, why="the path leads out of the tree")
        elif path not in have and "${" not in path:  # iPXE fills in ${…} on the machine: such a path cannot be checked here
            yield ExternalLink(place=place, leads_to=address, why="the tree has no such file")
