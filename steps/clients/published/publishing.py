"""Publishes an image: copied in beside, flushed, compared, named by one rename, and then pointed to by another."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from steps.clients.published import (
    connecting,
    entered,
    foreseen,
    leads,
    left,
    locking,
    mistaken,
    reading,
    recorded,
    signing,
    verifying,
)
from steps.clients.published import source as sources
from steps.clients.published.operations import (
    Check,
    Differs,
    Folder,
    Held,
    Link,
    Move,
    Operation,
    Put,
    Remove,
    Replace,
    Sync,
    Transport,
)
from steps.clients.published.source import Source
from steps.clients.published.tree import Tree
from steps.contract.canonical import digest_bytes
from steps.contract.image import published, publishing
from steps.contract.image.published import Place, Switch, Tested
from steps.contract.image.testing import Result
from steps.contract.stages.image_publish import Published
from steps.errors import BadTask, Refused

Say = Callable[[str], None]
Results = Mapping[str, list[Result]]
_NONE: Mapping[str, str] = {}
ENTERED_TRIES = 5
"""Looks at what other images have entered in ROOT/boot while this one wrote there; so often in a row nobody comes."""


class Order(Struct, frozen=True, kw_only=True):
    """What is published where: the image, the place, the results of its tests, the secrets' folder, and by whom; `again`: also what
    a rollback left, or to a tree made anew; `origin`: where the recipe came from, for the record of a new version and never a
    reason to make one. The source's manifest says both already. `known`: versions that were seen there before, by image."""

    source: Source
    place: Place
    results: Results
    secrets: Path
    by: str
    again: bool = False
    origin: str = ""
    known: Mapping[str, str] = {}

    @property
    def image(self) -> str:
        """The image's name."""
        return self.source.name


def publish(
    place: Place,
    assembled: Path,
    results: Results,
    secrets: Path,
    by: str,
    say: Say,
    *,
    again: bool = False,
    origin: str = "",
    known: Mapping[str, str] = _NONE,
) -> Published:
    """Publish the image in the folder `assembled`, and read the tree back. Nothing is written where it is current already. What a
    rollback left is refused unless it is meant `again`, as is a tree that lacks what was `known` to be there. Raises a StepError;
    what is half done then lies in `incoming`, and the next publication removes it."""
    found = sources.load(assembled, Tested(origin=origin, results=dict(results)))
    order = Order(source=found, place=place, results=results, secrets=secrets, by=by, again=again, origin=origin, known=dict(known))
    with connecting.to(place, secrets) as transport:
        return publish_through(transport, order, say)


def publish_through(transport: Transport, order: Order, say: Say) -> Published:
    """The same through a transport that is there."""
    if not order.place.groups:
        raise BadTask("there is no group of nodes, hence no boot script", hint="see publish.groups in the spec")
    sources.scripts(order.source, order.place, published.version_name(0, order.source.digest))
    tree = transport.look(order.image)
    _refuse_others(transport.where, tree, order)
    if _is_of(tree, tree.current, order.source) and not reading.incoming(tree):
        tree = transport.look(order.image, (tree.current,))
        if _is_done(tree, order):
            say(f"{order.image} {tree.current} is current already: nothing is written")
            return _observed(tree, order, tree.current, unchanged=True)
    foreseen.refuse_leading_out(tree, order.source, order.place, _new_version(tree, order))
    signing.prove(order.place, order.secrets)
    token = locking.new_token()
    with locking.locked(transport, order.image, token, order.by):
        tree = transport.look(order.image, _alike(tree, order.source))
        _refuse_others(transport.where, tree, order)
        version, removed = _change(transport, tree, order, token, say)
        found = transport.look(order.image, (version,))  # nobody else changes it before it is read
        for _ in range(ENTERED_TRIES):
            if not (late := tuple(_entered(found, order, token))):
                break
            transport.perform(late)  # another image came into ROOT/boot meanwhile, and may come again
            found = transport.look(order.image, (version,))
    before = tree.current if tree.current in tree.versions else ""  # else it was gone before, and could not be kept
    return _observed(found, order, before, unchanged=False, removed=removed)


def _change(transport: Transport, tree: Tree, order: Order, token: str, say: Say) -> tuple[str, tuple[str, ...]]:
    """Put the version in place, point to it, remove versions that need not stay. Returns it and those."""
    staged = f"{tree.path(published.INCOMING)}/{token}"
    _refuse_left(tree, order)
    alike = [name for name in reversed(_alike(tree, order.source)) if _is_whole(tree, name, order)]
    alike.sort(key=lambda name: name != tree.current)
    version = alike[0] if alike else _new_version(tree, order)
    foreseen.refuse_leading_out(tree, order.source, order.place, version)
    steps = [*cleared(tree, staged, token)]
    if not alike:
        size = sum(part.size for part in order.source.manifest.parts)
        say(f"copies {order.image} {version} to {transport.where}: {size / 1e6:.1f} MB")
        steps += _copied(tree, order, version, staged, token)
    steps += _switched(tree, order, version, staged, token)
    removed = spare(tree, order.place.keep, version)
    steps += _removed(tree, removed, staged, token)
    try:
        transport.perform(steps)
    except Differs:
        sources.examine(order.source)  # the store may be to blame, and then no other try helps
        raise
    say(f"{order.image}: {version} is current" + (f", it was {tree.current}" if tree.current not in ("", version) else ""))
    return version, removed


def _new_version(tree: Tree, order: Order) -> str:
    number = publishing.next_number(tree.versions, reading.history(tree))
    return published.version_name(number, order.source.digest)


def _copied(tree: Tree, order: Order, version: str, staged: str, token: str) -> Iterator[Operation]:
    """The whole version in `incoming`, on disk, compared; then its name."""
    folder, versions = f"{staged}/version", tree.path(published.VERSIONS)
    tested = Tested(origin=order.origin, results=dict(order.results))
    files = sources.small_files(order.source, order.place, version, tested, order.secrets)
    parts = order.source.manifest.parts
    yield Folder(f"{folder}/{published.BOOT}")
    yield from (Put(f"{folder}/{part.name}", order.source.folder / part.name, part.size) for part in parts)
    yield from (Put(f"{folder}/{name}", data, len(data)) for name, data in files.items())
    yield from (Check(f"{folder}/{part.name}", part.size, part.digest) for part in parts)
    yield from (Check(f"{folder}/{name}", len(data), digest_bytes(data)) for name, data in files.items())
    yield from (Sync(f"{folder}/{published.BOOT}"), Sync(folder), Folder(versions), Sync(tree.image), Sync("."))
    yield from (Held(tree.path(published.INCOMING), token), Move(folder, f"{versions}/{version}"), Sync(versions))


def _switched(tree: Tree, order: Order, version: str, staged: str, token: str) -> Iterator[Operation]:
    """The pointer, then the history, then what groups are told to load, where it is not so already."""
    yield from switched(tree, version, staged, token, order.by)
    wanted = entered.wanted(tree, order.source, order.place)
    yield from entered.steps(tree, wanted, entered.stale(tree, sources.names(order.place)), staged)


def _entered(tree: Tree, order: Order, token: str) -> Iterator[Operation]:
    """What groups and machines are told to load, where it is not so: nothing, unless another image has just changed what is told to
    all of them. Whoever writes looks again, so the last one has seen all others."""
    staged = f"{tree.path(published.INCOMING)}/{token}"
    if steps := tuple(entered.steps(tree, entered.wanted(tree, order.source, order.place), (), staged)):
        yield from (Folder(staged), *steps, Remove(staged))


def switched(tree: Tree, version: str, staged: str, token: str, by: str, *, rollback: bool = False) -> Iterator[Operation]:
    """The pointer to a version, by one rename of a fresh link, then the history, by another. Both lie ready before: who is stopped
    between the two leaves in `incoming` what it was about to say (`reading.history`). To flush may take longer than the lock's
    lease: nothing is between asking for the lock and the first of the renames."""
    lines, incoming = _lines(tree, version, by, rollback=rollback), tree.path(published.INCOMING)
    history, link = f"{staged}/{published.HISTORY}", f"{staged}/{published.CURRENT}"
    if lines:
        data = b"".join(map(publishing.history_line, (*reading.history(tree), *lines)))
        yield from (Put(history, data, len(data)), Sync(staged), Sync(incoming))
    if tree.current != version:
        yield from (Link(link, f"{published.VERSIONS}/{version}"), Sync(staged))
    yield Held(incoming, token)
    if tree.current != version:
        yield from (Replace(link, tree.path(published.CURRENT)), Sync(tree.image))
    if lines:
        yield from (Replace(history, tree.path(published.HISTORY)), Sync(tree.image))


def _lines(tree: Tree, version: str, by: str, *, rollback: bool) -> list[Switch]:
    """What the history lacks: a switch whose publisher had nothing ready to say of it, as older ones had, and this one. A rollback
    that goes on where another one to the same version was killed is that one's end."""
    switches, now = reading.history(tree), round(time.time(), 3)
    last = switches[-1].to if switches else ""
    lines = []
    if rollback and tree.current == version != last and published.number_of(version) < published.number_of(last):
        lines.append(Switch(to=version, before=last, at=now, by=by, rollback=True))
    elif tree.current and last != tree.current:
        lines.append(Switch(to=tree.current, before=last, at=now, by="found: whoever switched to it was stopped before saying so"))
    if tree.current != version:
        lines.append(Switch(to=version, before=tree.current, at=now, by=by, rollback=rollback))
    return lines


def cleared(tree: Tree, staged: str, token: str) -> Iterator[Operation]:
    """What attempts left in `incoming` goes, once the history has what one of them was about to say; then a folder of our own."""
    if (known := reading.history(tree)) != recorded.switches(tree):
        data, history = b"".join(map(publishing.history_line, known)), f"{staged}/{published.HISTORY}"
        yield from (Folder(staged), Put(history, data, len(data)), Held(tree.path(published.INCOMING), token))
        yield from (Replace(history, tree.path(published.HISTORY)), Sync(tree.image))
    yield from (Remove(tree.path(published.INCOMING, name)) for name in reading.stray(tree))
    yield Folder(staged)


def _removed(tree: Tree, names: tuple[str, ...], staged: str, token: str) -> Iterator[Operation]:
    """Versions lose their name first: no half of one is ever seen. Last, what was staged goes."""
    if names:
        yield Held(tree.path(published.INCOMING), token)
        yield from (Move(tree.path(published.VERSIONS, name), f"{staged}/{name}") for name in names)
        yield Sync(tree.path(published.VERSIONS))
    yield Remove(staged)


def spare(tree: Tree, keep: int, version: str) -> tuple[str, ...]:
    """Versions that need not stay: not among the newest, not current, nor what a rollback would lead to, nor on a node."""
    versions = (*tree.versions, *((version,) if version not in tree.versions else ()))
    way = [*reading.history(tree), Switch(to=version, before=tree.current)]
    protected = {version, tree.current, publishing.previous(way, version, tree.versions), *reading.in_use(tree)}
    stay = publishing.kept(versions, keep, protected)
    return tuple(name for name in tree.versions if name not in stay)


def _refuse_left(tree: Tree, order: Order) -> None:
    """What somebody went back from is not pointed to again, nor copied again, by a run that changes nothing about how it starts."""
    found = left.by_rollback(tree, order.place, dict.fromkeys(_alike(tree, order.source), order.source))
    if found and not order.again:
        raise Refused(publishing.left_sentence(found), hint=publishing.LEFT_STEP)


def _refuse_others(where: str, tree: Tree, order: Order) -> None:
    """The tree must be the one that is meant; a group's entry must not be taken from another image, nor one be left that the new
    version has no script for."""
    if not order.again:
        mistaken.refuse(tree, where, order.known)
    wanted = sources.names(order.place)
    for group, image in leads.entry_points(tree).items():
        file = f"{published.BOOT}/{group}{published.SCRIPT}"
        if group in wanted and image not in (order.image, ""):
            what = "machine" if published.is_machine(group) else "group"
            hint = f"take the {what} out of one of the two specs, or remove {file} by hand"
            raise Refused(f"{what} {group} boots the image {image}, as {file} says", hint=hint)
        if group not in wanted and image == order.image and not published.is_machine(group):
            hint = f"put the group back into publish.groups, or remove {file} by hand when no node loads it any more"
            raise Refused(f"nodes load {file}, but the spec has no group {group}: they could boot nothing", hint=hint)


def _alike(tree: Tree, source: Source) -> tuple[str, ...]:
    return tuple(name for name in tree.versions if _is_of(tree, name, source))


def _is_of(tree: Tree, version: str, source: Source) -> bool:
    """Whether a version is of this very image: its key and its bytes, whatever else the two manifests say."""
    found = reading.manifest_of(tree, version)
    return found is not None and found.is_same(source.manifest)


def _is_whole(tree: Tree, version: str, order: Order) -> bool:
    """Whether a version of this very image is sound, its scripts are those of today, it was tested as it is now, and it is signed
    where it shall be."""
    alike = sources.boots_alike(order.source, tree, order.place, version)
    as_wanted = alike and set(reading.tested(tree, version).results) >= set(order.results)
    return as_wanted and signing.suits(tree, version, order.place) and not any(verifying.for_place(tree, version, order.place))


def _is_done(tree: Tree, order: Order) -> bool:
    """Whether nothing is left to write: the version is whole, told of, and every group is led to it."""
    entries = entered.wanted(tree, order.source, order.place)
    led = all(tree.contents.get(f"{published.BOOT}/{name}") == data for name, data in entries.items())
    led = led and not entered.stale(tree, sources.names(order.place))
    few = not spare(tree, order.place.keep, tree.current)
    return led and few and reading.last_told(tree) == tree.current and _is_whole(tree, tree.current, order)


def _observed(tree: Tree, order: Order, before: str, *, unchanged: bool, removed: tuple[str, ...] = ()) -> Published:
    signed = signing.state(tree, tree.current, order.place.signers)
    if before == tree.current:
        before = reading.kept_before(tree)
    return reading.observed(tree, before=before, url=order.place.url, signature=signed, unchanged=unchanged, removed=removed)
