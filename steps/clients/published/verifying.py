"""What is wrong in a published tree, file by file. Nothing is read here but signatures."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from steps.clients.published import leads, reading, signing
from steps.clients.published.tree import Tree
from steps.contract.image import manifest, published, publishing
from steps.contract.image.published import Place

_CHANGED = "is not as this bringup writes it; where an older one did, the next publication writes it anew"


class Problem(Struct, frozen=True, kw_only=True):
    """One wrong thing: the file (relative to the root of the tree) and what is wrong with it."""

    place: str
    why: str


def problems(tree: Tree, signers: tuple[str, ...] = (), url: str = "") -> tuple[Problem, ...]:
    """Everything that is wrong; the tree's digests of all versions must have been read. `url`: how nodes reach the tree; empty: as
    the scripts of the current version say, which its list of digests covers, and a signature that."""
    url = url or _url(tree)
    found = [*_pointer(tree), *_history(tree), *_entries(tree, url), *_strays(tree)]
    for version in tree.versions:
        found += of_version(tree, version, signers)
    found += [Problem(place=one.place, why=f"leads to {one.leads_to}: {one.why}") for one in leads.outside(tree, url)]
    return tuple(found)


def of_version(tree: Tree, version: str, signers: tuple[str, ...] = ()) -> Iterator[Problem]:
    """What is wrong with one version, whose digests must have been read."""
    folder = tree.path(published.VERSIONS, version)
    image, digest = reading.manifest_of(tree, version), reading.manifest_digest(tree, version)
    if image is None:
        yield Problem(
            place=f"{folder}/{manifest.MANIFEST}", why="cannot be read as a manifest of this version" if digest else "is missing"
        )
    elif published.version_name(published.number_of(version), digest) != version:
        yield Problem(
            place=f"{folder}/{manifest.MANIFEST}", why=f"has the digest {digest}, which is not that of the version's name"
        )
    if image and image.name != tree.image:
        yield Problem(place=f"{folder}/{manifest.MANIFEST}", why=f"is of the image {image.name!r}")
    yield from _list(tree, folder)
    yield from _files(tree, version, folder)
    yield from _scripts(tree, version, folder)
    if (state := signing.state(tree, version, signers)) == signing.BAD or (signers and state == signing.NONE):
        why = "is not signed" if state == signing.NONE else "has a signature that no trusted key made over these bytes"
        yield Problem(place=f"{folder}/{manifest.MANIFEST}", why=why)


def for_place(tree: Tree, version: str, place: Place) -> Iterator[Problem]:
    """The same, signed only where the place asks for it."""
    yield from of_version(tree, version, place.signers if place.key else ())


def _list(tree: Tree, folder: str) -> Iterator[Problem]:
    place = f"{folder}/{published.SUMS}"
    data = tree.contents.get(place)
    try:
        found = publishing.read_sums(data or b"")
    except publishing.PublishingError as error:
        yield Problem(place=place, why=str(error))
        return
    if not found:
        yield Problem(place=place, why="is missing" if data is None else "lists nothing")
    elif lacking := sorted({manifest.MANIFEST, published.TESTS} - set(found)):
        yield Problem(place=place, why=f"does not list {', '.join(lacking)}")


def _files(tree: Tree, version: str, folder: str) -> Iterator[Problem]:
    files = {part.name: part for part in reading.found(tree, version)}
    listed = {part.name: part for part in reading.listed(tree, version)}
    sums = reading.sums(tree, version)
    for name, part in listed.items():
        have = files.pop(name, None)
        if have is None:
            yield Problem(place=f"{folder}/{name}", why="is missing")
        elif have.size != part.size:
            yield Problem(place=f"{folder}/{name}", why=f"has {have.size} bytes instead of {part.size}")
        elif not have.digest:
            yield Problem(place=f"{folder}/{name}", why="could not be read")
        elif have.digest != part.digest:
            yield Problem(place=f"{folder}/{name}", why=f"has the digest {have.digest} instead of {part.digest}")
        if sums and sums.get(name, part.digest) != part.digest:
            yield Problem(place=f"{folder}/{published.SUMS}", why=f"and the manifest disagree over {name}")
    allowed = set(signing.SIGNED.values())
    for name in sorted(set(files) - allowed):
        yield Problem(place=f"{folder}/{name}", why="is listed nowhere")
    for name, entry in sorted(tree.below(folder).items()):
        if not entry.is_file and not (entry.is_folder and name == published.BOOT):
            yield Problem(place=f"{folder}/{name}", why="is neither a file nor the folder of scripts")


def _scripts(tree: Tree, version: str, folder: str) -> Iterator[Problem]:
    scripts = reading.scripts(tree, version)
    if not scripts:
        yield Problem(place=f"{folder}/{published.BOOT}", why="has no boot script")
    for group, named in scripts.items():
        if named != version:
            said = f"the version {named}" if named else "no single version in all its paths"
            yield Problem(place=f"{folder}/{published.BOOT}/{group}{published.SCRIPT}", why=f"names {said}")


def _pointer(tree: Tree) -> Iterator[Problem]:
    place = tree.path(published.CURRENT)
    entry = tree.entries.get(place)
    if entry is None:
        if tree.versions:
            yield Problem(place=place, why="is missing: nodes find no version")
    elif not tree.current:
        yield Problem(place=place, why=f"leads to {entry.target!r}, which is no version" if entry.is_link else "is no link")
    elif tree.current not in tree.versions:
        yield Problem(place=place, why=f"leads to {tree.current}, which is not there")


def _history(tree: Tree) -> Iterator[Problem]:
    place = tree.path(published.HISTORY)
    switches, odd = publishing.read_history(tree.contents.get(place, b""))
    if odd:
        yield Problem(place=place, why=f"has {odd} lines that cannot be read")
    if tree.current and (not switches or switches[-1].to != tree.current):
        yield Problem(place=place, why=f"does not end with {tree.current}, which the pointer names")


def _url(tree: Tree) -> str:
    """The address that the current version's own scripts name, else that on which the entries agree. That one comes first after a
    rollback, where the version that was published last names it too: the tree may have been elsewhere when the current one was."""
    if leads.is_gone_back(tree) and (agreed := leads.url_of(tree)) and agreed == leads.base_of(tree, leads.last_published(tree)):
        return agreed
    return (leads.base_of(tree, tree.current) if tree.current else "") or leads.url_of(tree)


def _entries(tree: Tree, url: str) -> Iterator[Problem]:
    """What nodes load first, which no list of digests covers: each must have the very bytes that bringup writes."""
    scripts = set(reading.scripts(tree, tree.current)) if tree.current else set()
    entries = leads.entry_points(tree)
    moved = {name for name, image in entries.items() if published.is_machine(name) and image in tree.images}
    for group in sorted(scripts):
        if entries.get(group) != tree.image and group not in moved:
            why = "is missing" if group not in entries else "does not lead to this image's pointer"
            yield Problem(place=_entry(group), why=why)
    for group in sorted(name for name, image in entries.items() if image == tree.image and name not in scripts and tree.current):
        yield Problem(place=_entry(group), why=f"leads to a script that {tree.current} has not")
    for name, image in sorted(entries.items()):
        if url and image in tree.images and tree.contents.get(_entry(name)) != _written(url, image, name):
            yield Problem(place=_entry(name), why=_CHANGED)
        elif image and image not in tree.images:
            yield Problem(place=_entry(name), why=f"leads to the image {image}, which is not here")
        elif not image and name not in scripts and leads.claims(tree, name):
            yield Problem(place=_entry(name), why=f"leads to {tree.image} in another way than bringup writes")
    yield from _start(tree, entries, url)


def _entry(name: str) -> str:
    return f"{published.BOOT}/{name}{published.SCRIPT}"


def _written(url: str, image: str, name: str) -> bytes:
    """What bringup writes for an image's group or machine; nothing where none can have that name."""
    try:
        return publishing.entry_script(url, image, name)
    except publishing.PublishingError:
        return b""


def _start(tree: Tree, entries: Collection[str], url: str) -> Iterator[Problem]:
    """What every machine may be told to load."""
    data = tree.contents.get(published.START_SCRIPT)
    if url and data != publishing.start_script(url, entries):
        yield Problem(place=published.START_SCRIPT, why="is missing" if data is None else _CHANGED)


def _strays(tree: Tree) -> Iterator[Problem]:
    for name in tree.names(tree.path(published.VERSIONS)):
        if name not in tree.versions:
            yield Problem(place=tree.path(published.VERSIONS, name), why="is no version")
    stray = reading.stray(tree)
    for name in stray if stray == reading.incoming(tree) else ():  # nobody has the lock
        why = "was left by a publication that did not end; the next removes it"
        yield Problem(place=tree.path(published.INCOMING, name), why=why)
