"""Whether exactly this image is published already, told before anything is built: by its key, the text of its scripts, what it was
tested with, and the sizes of its files, or also their digests."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from steps.clients.published import connecting, entered, foreseen, leads, left, mistaken, publishing, reading, signing, verifying
from steps.clients.published import source as sources
from steps.clients.published.local import Local
from steps.clients.published.operations import Transport, failure
from steps.clients.published.source import Source
from steps.clients.published.tree import Tree
from steps.contract.image import manifest as manifests
from steps.contract.image import published
from steps.contract.image.manifest import Manifest
from steps.contract.image.published import Place
from steps.contract.stages.image_standing import CHANGED, CURRENT, LEFT, NOTHING, Standing
from steps.errors import StepError

_NONE: Mapping[str, str] = {}


def version(place: Place, image: str, key: str, firmware: tuple[str, ...] = ()) -> str:
    """The current version of an image of that name on this machine, where it has this key, was booted by each firmware, and is as
    it would be published now, to its end and with no more versions than stay; empty where anything differs, is missing or cannot be
    read. Large files are compared by size; `bringup image verify` reads."""
    root = Path(place.root)
    return "" if place.host or not root.is_dir() else version_through(Local(root), place, image, key, firmware)


def version_through(transport: Transport, place: Place, image: str, key: str, firmware: tuple[str, ...] = ()) -> str:
    """The same of a tree to which there is a way."""
    try:
        tree = transport.look(image)
        is_same = tree.current and not next(_differing(tree, place, key, firmware), "") and not next(_unfinished(tree), "")
        return tree.current if is_same and next(leads.of_publication(tree, place.url), None) is None else ""
    except StepError:
        return ""


def asked(
    place: Place,
    secrets: Path,
    image: str,
    key: str,
    firmware: tuple[str, ...],
    packages: Mapping[str, str] = _NONE,
    known: Mapping[str, str] = _NONE,
) -> Standing:
    """What a tree says of this image, wherever it is; `packages` are what it will have, name → version, and `known` the versions
    that were seen there before, by image. Raises a StepError where the tree cannot be asked."""
    with connecting.to(place, secrets) as transport:
        return asked_through(transport, place, image, key, firmware, packages, known)


def asked_through(
    transport: Transport,
    place: Place,
    image: str,
    key: str,
    firmware: tuple[str, ...],
    packages: Mapping[str, str] = _NONE,
    known: Mapping[str, str] = _NONE,
) -> Standing:
    """The same through a transport that is there. Files are read whole only where nothing else differs. Raises Refused where
    something is to be published that this user may not write, where the tree leads out of itself by what no publication writes
    anew, so that its gate would not pass, and where it lacks what was seen there."""
    tree = transport.look(image)
    mistaken.refuse(tree, transport.where, known)
    found = Standing(key=key, where=transport.where, answer=CHANGED if tree.current else NOTHING, version=tree.current)
    if (now := reading.manifest_of(tree, tree.current)) is not None and packages:
        added, gone, changed = reading.changes({one.name: one.version for one in now.packages}, packages)
        found = replace(found, packages_added=added, packages_removed=gone, packages_changed=changed)
    if (by := left.by_rollback(tree, place, _alike(tree, key))) is not None:
        return replace(found, answer=LEFT, left=by.before, left_by=by.by, left_at=by.at)
    if not tree.current:
        return _to_be_written(found, tree, place)
    differs = next(_differing(tree, place, key, firmware), "") or next(_unfinished(tree), "")
    if not differs:
        problems = verifying.for_place(transport.look(image, (tree.current,)), tree.current, place)
        differs = next((f"{one.place} {one.why}" for one in problems), "")
    if not differs:
        foreseen.refuse_as_it_is(tree, place)
        return replace(found, answer=CURRENT)
    return _to_be_written(replace(found, differs=differs), tree, place)


def _to_be_written(found: Standing, tree: Tree, place: Place) -> Standing:
    """Better said now than after an hour of building: raises Refused where the tree may not be written, or would not stand by
    itself."""
    if tree.unwritable:
        raise failure("right", f"to write {', '.join(tree.unwritable)}", found.where)
    foreseen.refuse_staying(tree, place)
    return found


def _differing(tree: Tree, place: Place, key: str, firmware: tuple[str, ...]) -> Iterator[str]:
    """In what the current version is not as it would be published now, one sentence each."""
    current, at = tree.current, tree.path(published.VERSIONS, tree.current)
    found = reading.manifest_of(tree, current)
    if found is None or found.key != key:
        yield f"{current} is another image" if found else f"{current} has no manifest that can be read"
        return
    if published.version_name(published.number_of(current), reading.manifest_digest(tree, current)) != current:
        yield f"{current} has another manifest than its name says"
    there = [(part.size, tree.entries.get(f"{at}/{part.name}")) for part in found.parts]
    if not all(entry is not None and entry.is_file and entry.size == size for size, entry in there):
        yield f"{current} is not whole"
    source, names = _source(tree, current, found), sources.names(place)
    wanted = sources.placed(source, tree, place, current)
    wanted |= {f"{published.BOOT}/{name}": data for name, data in entered.wanted(tree, source, place).items()}
    alike = set(reading.scripts(tree, current)) == names and not entered.stale(tree, names)
    if not (alike and all(tree.contents.get(path) == data for path, data in wanted.items())):
        yield f"{current} has other boot scripts than the spec asks for"
    untested = {f"image_boot.boot_{name}" for name in firmware} - set(reading.tested(tree, current).results)
    if untested:
        yield f"{current} was not booted by {', '.join(sorted(name.rpartition('_')[2] for name in untested))}"
    if publishing.spare(tree, place.keep, current):
        yield f"there are more versions than the {place.keep} that stay"
    if not signing.suits(tree, current, place):
        yield f"{current} is not signed as the spec asks for"


def _unfinished(tree: Tree) -> Iterator[str]:
    """What a publication that was stopped has left, which the next one brings to its end."""
    if reading.last_told(tree) != tree.current or reading.left(tree):
        yield f"the publication of {tree.current} was stopped before its end"


def _alike(tree: Tree, key: str) -> dict[str, Source]:
    """Versions of this key, each as it would be published now."""
    manifests_of = {version: reading.manifest_of(tree, version) for version in tree.versions}
    return {version: _source(tree, version, one) for version, one in manifests_of.items() if one is not None and one.key == key}


def _source(tree: Tree, version: str, manifest: Manifest) -> Source:
    at = tree.path(published.VERSIONS, version)
    return Source(folder=Path(tree.root) / at, manifest=manifest, data=tree.contents[f"{at}/{manifests.MANIFEST}"])
