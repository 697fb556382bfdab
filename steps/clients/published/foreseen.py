"""A tree as a publication will leave it, while nothing of that is written, and what would lead out of it. Pure."""

import stat
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from steps.clients.published import entered, leads
from steps.clients.published import source as sources
from steps.clients.published.source import Source
from steps.clients.published.tree import Entry, Tree
from steps.contract.image import detached, manifest, published
from steps.contract.image.published import Place
from steps.errors import Refused

_STEP = (
    "make them part of the tree, or remove them; a boot server must work without the factory, and a backup by hard links shares the"
    " files of the tree: have it copy them"
)


def tree(found: Tree, source: Source, place: Place, version: str) -> Tree:
    """The same with this image as its current version: one that is there, or a new one. Raises BadTask as its scripts do."""
    files = {f"{published.BOOT}/{name}": data for name, data in entered.wanted(found, source, place).items()}
    parts: tuple[manifest.Part, ...] = ()
    if version not in found.versions:
        at, parts = found.path(published.VERSIONS, version), source.manifest.parts
        files |= sources.placed(source, found, place, version)
        files |= {f"{at}/{manifest.MANIFEST}": source.data, f"{at}/{published.TESTS}": b""}
    gone = {f"{published.BOOT}/{name}" for name in entered.stale(found, sources.names(place))}
    gone |= {path for path in found.entries if path.startswith(f"{found.path(published.INCOMING)}/")}  # an attempt's, which goes
    entries = {path: one for path, one in found.entries.items() if path not in gone}
    entries |= {path: _file(len(data)) for path, data in files.items()}
    entries |= {found.path(published.VERSIONS, version, part.name): _file(part.size) for part in parts}
    folder = Entry(stat.S_IFDIR | 0o755, 0, 0, 1)
    entries |= {found.path(published.VERSIONS, version): folder} if parts else {}
    entries[found.path(published.CURRENT)] = Entry(stat.S_IFLNK | 0o777, 0, 0, 1, f"{published.VERSIONS}/{version}")
    contents = {path: data for path, data in found.contents.items() if path not in gone}
    return replace(found, entries=entries, contents=contents | files)


def refuse_leading_out(found: Tree, source: Source, place: Place, version: str) -> None:
    """Raise Refused where the gate of this publication would find that the tree leads out of itself: nodes are not to boot first
    what is judged afterwards."""
    _refuse(leads.of_publication(tree(found, source, place, version), place.url))


def refuse_as_it_is(found: Tree, place: Place) -> None:
    """The same where a publication of what is current would write nothing."""
    _refuse(leads.of_publication(found, place.url))


def refuse_staying(found: Tree, place: Place) -> None:
    """The same of what any publication to this place leaves as it is, whatever the image: told before one is built."""
    _refuse(one for one in leads.of_publication(found, place.url) if _stays(found, one.place, sources.names(place)))


def _stays(found: Tree, path: str, names: Collection[str]) -> bool:
    """Whether a publication writes nothing in the place of that path. A version that is current is not when it is done."""
    if path.startswith(f"{found.path(published.VERSIONS)}/") or path == published.START_SCRIPT:
        return False
    if path == found.path(published.CURRENT) or path.startswith(f"{found.path(published.INCOMING)}/"):
        return False
    return path.removeprefix(f"{published.BOOT}/").removesuffix(published.SCRIPT) not in names


def _refuse(out: Iterable[detached.Outside]) -> None:
    if told := [one.sentence for one in out]:
        more = f", and {len(told) - 1} more" if len(told) > 1 else ""
        raise Refused(f"the tree leads out of itself, so nothing is published: {told[0]}{more}", hint=_STEP)


def _file(size: int) -> Entry:
    return Entry(stat.S_IFREG | 0o644, size, 0, 1)
