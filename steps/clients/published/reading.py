"""What a tree as it was found says: manifests, scripts, history, nodes, and the observation of a publication. Pure."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from steps.clients.published import leads, recorded
from steps.clients.published.tree import Tree
from steps.contract.canonical import digest_bytes
from steps.contract.image import ipxe, manifest, published, publishing
from steps.contract.image.manifest import Manifest, ManifestError, Part
from steps.contract.image.published import NodeSeen, Switch, Tested
from steps.contract.stages.image_publish import Published


def manifest_of(tree: Tree, version: str) -> Manifest | None:
    """The manifest of a version; None where there is none that can be read."""
    try:
        return manifest.decode(tree.contents[tree.path(published.VERSIONS, version, manifest.MANIFEST)])
    except (KeyError, ManifestError):
        return None


def manifest_digest(tree: Tree, version: str) -> str:
    """Digest of a version's manifest; empty where there is none."""
    data = tree.contents.get(tree.path(published.VERSIONS, version, manifest.MANIFEST))
    return "" if data is None else digest_bytes(data)


def found(tree: Tree, version: str) -> tuple[Part, ...]:
    """The files of a version as they lie there, but the list of digests and its signature."""
    folder = tree.path(published.VERSIONS, version)
    files = {name: one for name, one in tree.below(folder).items() if one.is_file}
    names = sorted(set(files) - {published.SUMS, published.SUMS_SIGNATURE})
    return tuple(Part(name=name, digest=tree.digests.get(f"{folder}/{name}", ""), size=files[name].size) for name in names)


def listed(tree: Tree, version: str) -> tuple[Part, ...]:
    """The files that a version must have: those of its manifest, and all others of its list of digests."""
    folder = tree.path(published.VERSIONS, version)
    image = manifest_of(tree, version)
    parts = {part.name: part for part in image.parts} if image else {}
    for name, digest in sums(tree, version).items():
        entry = tree.entries.get(f"{folder}/{name}")
        parts.setdefault(name, Part(name=name, digest=digest, size=entry.size if entry else 0))
    return tuple(parts[name] for name in sorted(parts))


def sums(tree: Tree, version: str) -> dict[str, str]:
    """The list of digests of a version; empty where there is none that can be read."""
    try:
        return publishing.read_sums(tree.contents[tree.path(published.VERSIONS, version, published.SUMS)])
    except (KeyError, publishing.PublishingError):
        return {}


def seems_whole(tree: Tree, version: str) -> bool:
    """Whether a version has all that its manifest and its list of digests name, each of its size; no file is read for it."""
    image, named = manifest_of(tree, version), sums(tree, version)
    sizes = {one.name: one.size for one in found(tree, version)}
    if image is None or not {manifest.MANIFEST, published.TESTS} <= named.keys() <= sizes.keys() or not scripts(tree, version):
        return False
    return all(sizes.get(part.name) == part.size for part in image.parts)


def tested(tree: Tree, version: str) -> Tested:
    """What a version was published upon; nothing where that cannot be read."""
    try:
        return msgspec.json.decode(tree.contents[tree.path(published.VERSIONS, version, published.TESTS)], type=Tested)
    except (KeyError, msgspec.MsgspecError):
        return Tested()


def history(tree: Tree) -> tuple[Switch, ...]:
    """Switches of the pointer, the oldest first. Whoever was stopped right behind the last one had its history ready, and what lies
    in `incoming` tells of it: a rollback is one from the moment that nodes boot another version."""
    said = recorded.switches(tree)
    if last_told(tree) == tree.current:
        return said
    ready = [_ready(tree, name, said) for name in tree.names(tree.path(published.INCOMING))]
    return max((one for one in ready if one), key=lambda one: one[-1].rollback, default=said)


def _ready(tree: Tree, name: str, said: tuple[Switch, ...]) -> tuple[Switch, ...]:
    """The history that an attempt had ready, where it goes on with what is `said` to what the pointer names; else nothing."""
    found, odd = publishing.read_history(tree.contents.get(tree.path(published.INCOMING, name, published.HISTORY), b""))
    goes_on = found[: len(said)] == said and len(found) > len(said) and not odd
    return found if goes_on and found[-1].to == tree.current else ()


def before(tree: Tree) -> str:
    """What the pointer named before it named what it names, whether or not the history knows of that switch; empty where nothing
    tells."""
    switches = history(tree)
    if not switches or not tree.current:
        return ""
    return switches[-1].before if switches[-1].to == tree.current else switches[-1].to


def kept_before(tree: Tree) -> str:
    """The same where it is still there; one that somebody removed since is nothing that a publication could keep."""
    found = before(tree)
    return found if found in tree.versions else ""


def last_told(tree: Tree) -> str:
    """The version that the file of the history says is current; empty without any."""
    switches = recorded.switches(tree)
    return switches[-1].to if switches else ""


def scripts(tree: Tree, version: str) -> dict[str, str]:
    """Groups and machines whose script a version has → the version that all its addresses name; empty for several or none."""
    folder = tree.path(published.VERSIONS, version, published.BOOT)
    texts = {name: tree.contents.get(f"{folder}/{name}", b"") for name in tree.names(folder) if name.endswith(published.SCRIPT)}
    return {
        name.removesuffix(published.SCRIPT): leads.named_version(text.decode(errors="replace"), tree.image)
        for name, text in texts.items()
    }


def nodes(tree: Tree) -> tuple[NodeSeen, ...]:
    """What nodes reported; a report that cannot be read counts as a node that says nothing. Of reports with one MAC address only
    that which was told last counts: a machine that has got a name, or another one, left its earlier file behind."""
    found = [_node(name, data) for name, data in sorted(tree.nodes.items())]
    last = {published.mac_in(one.mac): one for one in sorted(found, key=lambda one: (told(tree, one), one.at))}
    return tuple(one for one in found if not (mac := published.mac_in(one.mac)) or last[mac] is one)


def told(tree: Tree, seen: NodeSeen) -> int:
    """When a node told it (UTC seconds); 0 where its report was gone at once."""
    return tree.told.get(f"{seen.node}.json", 0)


class Versions(Struct, frozen=True, kw_only=True):
    """The versions of a tree, each with the digests of its manifest and root (none where that cannot be read), and found by one of
    these. Several may have one: the first of `order` counts, that is the current one and then the newest. `machines`: as `machines`
    below has them. Made once for however many nodes."""

    order: tuple[str, ...]
    digests: dict[str, frozenset[str]]
    places: dict[str, int]
    machines: frozenset[str] | None

    def on(self, node: NodeSeen) -> str:
        """The version that a node runs: the one that it names, unless its root is another's; without a name (older images send
        none), or with one that does not fit, by a digest. Empty where the tree has none such."""
        own = self.digests.get(node.version)
        if own is not None and (not own or not node.image or node.image in own):
            return node.version
        if node.version and own is None:
            return ""
        found = [self.places[digest] for digest in (node.image, node.manifest) if digest in self.places]
        return self.order[min(found)] if found else ""

    def knows(self, node: NodeSeen) -> bool:
        """Whether a report is one of a machine that may boot the image."""
        return self.machines is None or published.mac_in(node.mac) in self.machines


def versions(tree: Tree) -> Versions:
    """By what the versions of a tree are told from each other."""
    there = tree.versions
    order = tuple(dict.fromkeys((*((tree.current,) if tree.current in there else ()), *reversed(there))))
    digests: dict[str, frozenset[str]] = {}
    places: dict[str, int] = {}
    for place, version in enumerate(order):
        image = manifest_of(tree, version)
        root = image.part(manifest.ROOT) if image else None
        digests[version] = frozenset({manifest_digest(tree, version), root.digest}) if root else frozenset()
        for digest in digests[version]:
            places.setdefault(digest, place)
    return Versions(order=order, digests=digests, places=places, machines=machines(tree))


def in_use(tree: Tree) -> tuple[str, ...]:
    """Versions that nodes reported to run: those that stay, so nobody is believed who could not have booted one."""
    seen = nodes(tree)
    if not seen:
        return ()
    here = versions(tree)
    return tuple(sorted({here.on(node) for node in seen if here.knows(node)} - {""}))


def machines(tree: Tree) -> frozenset[str] | None:
    """MAC addresses of the machines that versions of the image name, where nothing but these boots it; None where any may."""
    folder = tree.path(published.VERSIONS, tree.current, published.BOOT)
    current = [name for name in scripts(tree, tree.current) if not published.is_machine(name)] if tree.current else []
    texts = (tree.contents.get(f"{folder}/{name}{published.SCRIPT}", b"").decode(errors="replace") for name in current)
    named = {name for version in tree.versions for name in scripts(tree, version) if published.is_machine(name)}
    if not named or not all(map(ipxe.is_guarded, texts)):
        return None
    return frozenset(map(published.mac_of, named))


def incoming(tree: Tree) -> tuple[str, ...]:
    """What lies in `incoming`, the lock included while somebody has it: an attempt at work, or left by one."""
    place = tree.path(published.INCOMING)
    given_back = {name for name, entry in tree.below(place).items() if name.startswith(published.LOCK) and not entry.size}
    return tuple(name for name in tree.names(place) if name not in given_back)


def stray(tree: Tree) -> tuple[str, ...]:
    """The same without locks: what the holder of the lock removes."""
    return tuple(name for name in incoming(tree) if not name.startswith(published.LOCK))


def left(tree: Tree) -> tuple[str, ...]:
    """The same without what others wait for the lock with."""
    return tuple(name for name in stray(tree) if not name.startswith(published.CLAIM))


def observed(tree: Tree, *, before: str, url: str, signature: str, unchanged: bool, removed: tuple[str, ...] = ()) -> Published:
    """The tree as the gate of a publication looks at it."""
    version = tree.current
    added, gone, changed = package_changes(tree, before, version)
    named, lead = scripts(tree, version), leads.entry_points(tree)
    whole = set(found(tree, version)) & {part for part in listed(tree, version) if _is_machines(part.name)}
    return Published(
        version=version,
        origin=tested(tree, version).origin,
        manifest=manifest_digest(tree, version),
        before=before,
        found=tuple(part for part in found(tree, version) if part not in whole),
        listed=tuple(part for part in listed(tree, version) if part not in whole),
        scripts={name: one for name, one in named.items() if not published.is_machine(name)},
        unchanged=unchanged,
        incoming=left(tree),
        outside=tuple(one.sentence for one in leads.of_publication(tree, url)),
        signature=signature,
        versions=tree.versions,
        removed=removed,
        packages_added=added,
        packages_removed=gone,
        packages_changed=changed,
        entries=tuple(group for group, image in lead.items() if image == tree.image and not published.is_machine(group)),
        lost=tuple(
            name for name, one in named.items() if published.is_machine(name) and (one, lead.get(name)) != (version, tree.image)
        ),
        in_use=in_use(tree),
    )


def _is_machines(path: str) -> bool:
    """Whether a file of a version is a machine's script: thousands of sound ones say nothing that one does not."""
    return published.is_machine(path.removeprefix(f"{published.BOOT}/").removesuffix(published.SCRIPT))


def package_changes(tree: Tree, old: str, new: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Packages that one version has and another has not, and those of another version; all empty where one cannot be read."""
    images = manifest_of(tree, old), manifest_of(tree, new)
    if images[0] is None or images[1] is None:
        return (), (), ()
    had, has = ({one.name: one.version for one in image.packages} for image in images if image)
    return changes(had, has)


def changes(had: Mapping[str, str], has: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What was added, removed and changed between packages, each a name with its version."""
    added = tuple(f"{name}={has[name]}" for name in sorted(set(has) - set(had)))
    gone = tuple(f"{name}={had[name]}" for name in sorted(set(had) - set(has)))
    changed = tuple(f"{name} {had[name]} → {has[name]}" for name in sorted(set(had) & set(has)) if had[name] != has[name])
    return added, gone, changed


def _node(name: str, data: bytes) -> NodeSeen:
    try:
        seen = msgspec.json.decode(data, type=NodeSeen)
    except msgspec.MsgspecError:
        seen = NodeSeen(node="", image="")
    return seen if seen.node == name.removesuffix(".json") else NodeSeen(node=name.removesuffix(".json"), image="")
