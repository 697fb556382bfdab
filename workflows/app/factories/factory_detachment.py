"""The check of `bringup factory detach-check`: nothing that production reads may lead into a factory.

Published folders are read file by file: links, texts, module files, and the strings of binaries, among which run paths are.
Specs of platforms are read as text, with registry mirrors, image references, names and addresses in them.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from steps.contract import detachment
from steps.contract.detachment import ExternalLink, Factory
from steps.contract.plain_text import count
from workflows.spec import FactorySpec, factory_addresses

LARGEST = 256 << 20
"""Largest file that is read, in bytes; larger ones are listed as not read."""


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
        """Return the sentence about a check without a finding."""
        return f"{count(self.files, 'file')} read, and none leads into the factory"


def check(spec: FactorySpec, places: Iterable[Path], folders: Iterable[str]) -> FactoryDetachment:
    """Read files and folders for ways into the factory. Raises NothingToCheck."""
    factory, links, unread, files = factory_addresses.addresses(spec, folders), list[ExternalLink](), list[str](), 0
    chosen = tuple(places)
    if not chosen:
        raise NothingToCheck("no place is named that production reads")
    for place in chosen:
        if not place.exists():
            raise NothingToCheck(f"there is no {place}")
        for path in _files(place):
            files += 1
            links += _links(path, factory, unread)
    return FactoryDetachment(links=tuple(links), unread=tuple(unread), files=files)


def _files(place: Path) -> Iterator[Path]:
    """Yield files and links of a folder in order, without following links; a file itself."""
    if not place.is_dir():
        yield place
        return
    for folder, folders, names in os.walk(place):
        folders.sort()
        for name in sorted([*names, *(entry for entry in folders if Path(folder, entry).is_symlink())]):
            yield Path(folder, name)


def _links(path: Path, factory: Factory, unread: list[str]) -> list[ExternalLink]:
    if path.is_symlink():
        target = os.readlink(path)
        below = any(detachment.is_below(os.path.normpath(target), folder) for folder in factory.folders)
        why = [ExternalLink(place=str(path), leads_to=target, why="a folder of the factory")] if below else []
        return why or list(detachment.mentions(str(path), target, Factory(hosts=factory.hosts)))
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            unread.append(f"{path} (no file, or larger than {LARGEST >> 20} MiB)")
            return []
        # strings of binaries end with a zero byte, which must not join two of them
        text = path.read_bytes().decode("latin-1").replace("\0", "\n")
    except OSError as error:
        unread.append(f"{path} ({error.strerror})")
        return []
    return list(detachment.mentions(str(path), text, factory))
