"""Where the boot scripts of a tree lead: which version they name, which image's pointer, and what is not of the tree. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from steps.clients.published import recorded
from steps.clients.published.tree import Tree
from steps.contract.image import detached, manifest, published
from steps.contract.image.detached import Factory

_NO_FACTORY = Factory()


def named_version(script: str, image: str) -> str:
    """The version that every address of a script names, but those where machines begin anew; empty for several or none."""
    mark = f"/{image}/{published.VERSIONS}/"
    named = {
        address.partition(mark)[2].partition("/")[0] for address in detached.addresses(script) if not _is_entry(address, image)
    }
    return named.pop() if len(named) == 1 else ""


def _is_entry(address: str, image: str) -> bool:
    """Whether an address is of a script in ROOT/boot, and not of one below the pointer or in a version."""
    head, _, name = address.rpartition(f"/{published.BOOT}/")
    below = head.endswith(f"/{image}/{published.CURRENT}") or f"/{image}/{published.VERSIONS}/" in head
    return bool(head) and name.endswith(published.SCRIPT) and not below


def entry_points(tree: Tree) -> dict[str, str]:
    """Groups and machines of ROOT/boot → the image whose pointer their script leads to; empty where it leads to none."""
    leads = {}
    for name in tree.names(published.BOOT):
        place = f"{published.BOOT}/{name}"
        if not name.endswith(published.SCRIPT) or place == published.START_SCRIPT:
            continue
        text = tree.contents.get(place, b"").decode(errors="replace")
        address = next(iter(detached.addresses(text)), "")
        head, _, tail = address.rpartition(f"/{published.CURRENT}/{published.BOOT}/")
        leads[name.removesuffix(published.SCRIPT)] = head.rpartition("/")[2] if tail == name else ""
    return leads


def claims(tree: Tree, name: str) -> bool:
    """Whether a script of ROOT/boot names a version of this image, or its pointer, by whatever way."""
    text = tree.contents.get(f"{published.BOOT}/{name}{published.SCRIPT}", b"").decode(errors="replace")
    return bool(detached.bases([text], tree.image))


def outside(tree: Tree, url: str, factory: Factory = _NO_FACTORY) -> Iterator[detached.Outside]:
    """Links, scripts and manifests of the tree that lead out of it. `url`: its address; empty: the one that its entries name. What
    nodes are told now must be there; a version that is not current, or was gone back to, may be at another address, which all its
    scripts name."""
    links = {path: entry.target for path, entry in tree.entries.items() if entry.is_link}
    yield from detached.links(tree.root, links, factory)
    texts, lead = {path: data.decode(errors="replace") for path, data in tree.contents.items()}, entry_points(tree)
    mine = {path: text for path, text in texts.items() if path.endswith(published.SCRIPT) and _of_image(tree, path, lead)}
    files = [*tree.entries, *_through_pointers(tree), *_told_by_versions(tree)]
    for version, address in moved(tree, url).items():
        folder = f"{tree.path(published.VERSIONS, version)}/"
        theirs = {path: mine.pop(path) for path in list(mine) if path.startswith(folder)}
        yield from detached.scripts(address, theirs, files, factory)
    yield from detached.scripts(url or url_of(tree), mine, files, factory)
    manifests = {path: text for path, text in texts.items() if path.endswith(f"/{manifest.MANIFEST}")}
    yield from detached.manifests(manifests, factory)
    for path, entry in tree.below(tree.path(published.VERSIONS)).items():
        if entry.is_file and entry.names > 1:
            place = tree.path(published.VERSIONS, path)
            yield detached.Outside(
                place=place, leads_to="another name of the same bytes", why="what is written there changes it here"
            )


def of_publication(tree: Tree, url: str) -> Iterator[detached.Outside]:
    """What of it a publication answers for: the version that is current, and all that is of no version. Nothing of an older one
    changes any more, whoever backs it up by hard links: those are for who verifies the tree."""
    versions = f"{tree.path(published.VERSIONS)}/"
    own = f"{versions}{tree.current}/"
    yield from (one for one in outside(tree, url) if not one.place.startswith(versions) or one.place.startswith(own))


def moved(tree: Tree, url: str = "") -> dict[str, str]:
    """Versions that were published when the tree had another address than `url` (empty: the one that its entries name) → that
    address: nothing of a version changes any more, so nodes that boot it fetch it from there. The current one is among them only
    where somebody went back to it: what is published is at the address of today."""
    here, strict = url.rstrip("/") or url_of(tree), "" if is_gone_back(tree) else tree.current
    found = {version: base_of(tree, version) for version in tree.versions if version != strict} if here else {}
    return {version: address for version, address in found.items() if address not in ("", here)}


def is_gone_back(tree: Tree) -> bool:
    """Whether the current version is one that a rollback went to, as the file of the history says."""
    switches = recorded.switches(tree)
    return bool(switches) and switches[-1].rollback and switches[-1].to == tree.current


def last_published(tree: Tree) -> str:
    """The version that became current last by anything but a rollback; empty where the history tells of none."""
    return next((one.to for one in reversed(recorded.switches(tree)) if not one.rollback), "")


def moved_sentences(tree: Tree, url: str = "") -> tuple[str, ...]:
    """The same in words."""
    return tuple(
        f"{tree.path(published.VERSIONS, version)}: nodes that boot it fetch from {address}, where the tree was then"
        for version, address in moved(tree, url).items()
    )


def base_of(tree: Tree, version: str) -> str:
    """The address of the tree that all scripts of a version name; empty where they name several or none."""
    folder = tree.path(published.VERSIONS, version, published.BOOT)
    texts = (tree.contents.get(f"{folder}/{name}", b"").decode(errors="replace") for name in tree.names(folder))
    return _agreed(texts, tree.image)


def url_of(tree: Tree) -> str:
    """The address of the tree, where its entries agree on one; else empty."""
    texts = [
        tree.contents.get(f"{published.BOOT}/{group}{published.SCRIPT}", b"").decode(errors="replace")
        for group, image in entry_points(tree).items()
        if image == tree.image
    ]
    return _agreed(texts, tree.image)


def _agreed(texts: Iterable[str], image: str) -> str:
    """The one address of a tree that scripts of an image lead to; empty where they lead to several or none."""
    bases = detached.bases(texts, image)
    return bases[0] if len(bases) == 1 else ""


def _of_image(tree: Tree, path: str, lead: Mapping[str, str]) -> bool:
    """Scripts of this image: its own, and its groups' entries; those of other images are looked at with them."""
    name = path.removeprefix(f"{published.BOOT}/")
    if name == path or path == published.START_SCRIPT:
        return True
    return lead.get(name.removesuffix(published.SCRIPT)) in (tree.image, "")


def _through_pointers(tree: Tree) -> list[str]:
    """Paths by way of this image's pointer."""
    below = tree.below(tree.path(published.VERSIONS, tree.current)) if tree.current else {}
    return [tree.path(published.CURRENT, path) for path in below]


def _told_by_versions(tree: Tree) -> Iterator[str]:
    """Entries of all groups that versions have a script of, also those that no node is told any more: who booted one begins anew
    there, and `verifying` tells which of them are missing."""
    scripts = (name for name in tree.below(tree.path(published.VERSIONS)) if name.endswith(published.SCRIPT))
    yield from {f"{published.BOOT}/{name.rpartition('/')[2]}" for name in scripts}
