"""The check of `bringup factory detach-check`: nothing that production reads may lead into a factory.

Published folders are read file by file: links, texts, module files, and the strings of binaries, among which run paths are.
Packed files are unpacked (`packed_content`). Specs of platforms are read as text, with registry mirrors, image references, names
and addresses in them.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from msgspec.structs import replace

from steps.contract import detachment
from steps.contract.detachment import ExternalLink, Factory
from steps.contract.plain_text import count
from workflows.app.factories import packed_content
from workflows.app.factories.packed_content import PackedFileError
from workflows.spec import FactorySpec
from workflows.spec.pipelines import factory_addresses

LARGEST: Final = 256 << 20
"""Largest file that is read as it is, in bytes; larger ones are listed as not read."""
MOST_HOPS: Final = 40
"""Symbolic links that the kernel follows in one path."""
_PIECE: Final = 1 << 20
_OVERLAP: Final = 4096
"""Bytes of a piece of a file that are searched again with the next piece, if no line ends near the cut."""


class NothingToCheck(ValueError):
    """Error for a check without any place, or with a place that does not exist."""

    hint = "name published folders and specs of platforms"


@dataclass(frozen=True, kw_only=True)
class FactoryDetachment:
    """The result of a check: the ways into the factory, the files that were not read, and how many were."""

    links: tuple[ExternalLink, ...]
    unread: tuple[str, ...]
    files: int

    @property
    def summary(self) -> str:
        """Return the sentence about a check without a way into the factory."""
        if not self.unread:
            return f"{count(self.files, 'file')} read, and none leads into the factory"
        checked = f"{count(self.files, 'file')} checked, and no way into the factory seen"
        return f"{checked}; {count(len(self.unread), 'place')} could not be read"


def check(spec: FactorySpec, places: Iterable[Path], folders: Iterable[str]) -> FactoryDetachment:
    """Read files and folders for ways into the factory. Raises NothingToCheck."""
    factory, links, unread, files = factory_addresses.addresses(spec, folders), list[ExternalLink](), list[str](), 0
    # a folder of the factory may itself be a link on this machine, and links then lead to where it ends
    real = replace(factory, folders=tuple(dict.fromkeys((*factory.folders, *map(os.path.realpath, factory.folders)))))
    chosen = tuple(places)
    if not chosen:
        raise NothingToCheck("no place is named that production reads")
    for place in chosen:
        if not place.exists():
            raise NothingToCheck(f"there is no {place}")
        links += _link(str(place), "/", str(place.absolute()), real)
        for path in _files(place, unread):
            files += 1
            links += _links(path, real, factory, unread)
    return FactoryDetachment(links=tuple(links), unread=tuple(unread), files=files)


def _files(place: Path, unread: list[str]) -> Iterator[Path]:
    """Yield files and links of a folder in order, without following links; a file itself. Adds closed folders to `unread`."""
    if not place.is_dir():
        yield place
        return
    for folder, folders, names in os.walk(place, onerror=lambda error: unread.append(f"{error.filename} ({error.strerror})")):
        folders.sort()
        for name in sorted([*names, *(entry for entry in folders if Path(folder, entry).is_symlink())]):
            yield Path(folder, name)


def _links(path: Path, real: Factory, factory: Factory, unread: list[str]) -> Iterator[ExternalLink]:
    if path.is_symlink():
        target = os.readlink(path)
        ways = tuple(_link(str(path), os.path.realpath(path.parent), target, real))
        yield from ways or detachment.mentions(str(path), target, Factory(hosts=factory.hosts))
        return
    try:
        if not path.is_file():
            unread.append(f"{path} (no file)")
            return
        with path.open("rb") as stream:
            if packed_content.is_packed(stream):
                for name, content in packed_content.contents(path, stream):
                    yield from _mentions(f"{path}{name}", content, factory)
            elif path.stat().st_size > LARGEST:
                unread.append(f"{path} (larger than {LARGEST >> 20} MiB)")
            else:
                if why := packed_content.closed_initrd(path.name, stream):
                    unread.append(f"{path} ({why})")
                yield from _mentions(str(path), stream, factory)
    except PackedFileError as error:
        unread.append(f"{path} ({error})")
    except OSError as error:
        unread.append(f"{path} ({error.strerror})")


def _link(place: str, folder: str, target: str, factory: Factory) -> Iterator[ExternalLink]:
    """Yield the first step below a folder of the factory on the way to the target of a link that lies in `folder`."""
    for step in _steps(folder, target):
        if any(detachment.is_below(step, closed) for closed in factory.folders):
            yield ExternalLink(place=place, leads_to=step, why="a folder of the factory")
            return


def _steps(folder: str, target: str) -> Iterator[str]:
    """Yield each path that the kernel passes from a folder to a target, also in the links on this way."""
    here, waiting, hops = "/" if target.startswith("/") else folder, target.split("/")[::-1], 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        step = os.path.dirname(here) if part == ".." else os.path.join(here, part)
        yield step
        if part != ".." and os.path.islink(step):
            if (hops := hops + 1) > MOST_HOPS:
                return
            further = os.readlink(step)
            here = "/" if further.startswith("/") else here
            waiting += further.split("/")[::-1]
        else:
            here = step


def _mentions(place: str, stream: IO[bytes], factory: Factory) -> Iterator[ExternalLink]:
    """Yield each host and folder of the factory once that a file or a packed part of it names."""
    seen, names = set[str](), [name.lower().encode() for name in (*factory.hosts, *factory.folders)]
    for piece in _pieces(stream):
        lower = piece.lower()
        if not any(name in lower for name in names):  # a hundred times faster than a look at all lines
            continue
        # strings of binaries end with a zero byte, which must not join two of them
        for link in detachment.mentions(place, piece.decode("latin-1").replace("\0", "\n"), factory):
            if link.leads_to not in seen:
                seen.add(link.leads_to)
                yield link


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield a stream in pieces that end with a line or a string, or else overlap, so that no name is cut in two."""
    rest = b""
    while chunk := stream.read(_PIECE):
        piece = rest + chunk
        end = max(piece.rfind(b"\n"), piece.rfind(b"\0")) + 1
        if len(piece) - end > _PIECE:
            yield piece
            rest = piece[-_OVERLAP:]
        else:
            yield piece[:end]
            rest = piece[end:]
    yield rest
