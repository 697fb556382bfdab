"""Addresses in the boot scripts of a release folder: the versions and images that they lead to, and those outside of it. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from steps.clients.releases.release_kind import hard_links
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import detachment, release_layout
from steps.contract.detachment import NO_FACTORY, ExternalLink, Factory
from steps.nodeimage.contract import boot_tree, image_manifest, script_links


def named_version(script: str, image: str) -> str:
    """Return the version that all addresses in a boot script name; empty if they name several or none.

    Boot entries, to which machines return after a failure, do not count.
    """
    mark = f"/{image}/{release_layout.VERSIONS}/"
    addresses = (address for address in script_links.addresses(script) if not _is_entry(address, image))
    versions = {address.partition(mark)[2].partition("/")[0] for address in addresses}
    return versions.pop() if len(versions) == 1 else ""


def _is_entry(address: str, image: str) -> bool:
    """Return True if an address is of a script in ROOT/boot, False if the script is below the pointer `current` or in a version."""
    head, _, name = address.rpartition(f"/{boot_tree.BOOT}/")
    below = head.endswith(f"/{image}/{release_layout.CURRENT}") or f"/{image}/{release_layout.VERSIONS}/" in head
    return bool(head) and name.endswith(boot_tree.SCRIPT) and not below


def entry_images(tree: ReleaseTree) -> dict[str, str]:
    """Return group or machine with a boot entry → the image whose pointer the entry leads to; empty if it leads to none."""
    images = {}
    for name in tree.names(boot_tree.BOOT):
        path = f"{boot_tree.BOOT}/{name}"
        if not name.endswith(boot_tree.SCRIPT) or path == boot_tree.START_SCRIPT:
            continue
        address = next(iter(script_links.addresses(_text(tree, path))), "")
        head, _, tail = address.rpartition(f"/{release_layout.CURRENT}/{boot_tree.BOOT}/")
        images[name.removesuffix(boot_tree.SCRIPT)] = head.rpartition("/")[2] if tail == name else ""
    return images


def mentions_image(tree: ReleaseTree, name: str) -> bool:
    """Return True if the boot entry of that name has any address of a version or of the pointer of this image."""
    text = _text(tree, f"{boot_tree.BOOT}/{name}{boot_tree.SCRIPT}")
    return bool(script_links.tree_urls([text], tree.product))


def external_links(tree: ReleaseTree, url: str, factory: Factory = NO_FACTORY) -> Iterator[ExternalLink]:
    """Yield the links, scripts and manifests that lead out of the release folder. `url` is its address; empty: that in its entries.

    Scripts of the current version and boot entries must be at this address. A version that is not current, or that a rollback went
    to, may be at another address, which all its scripts name.
    """
    targets = {path: entry.target for path, entry in tree.entries.items() if entry.is_link}
    yield from detachment.symbolic_links(tree.root, targets, factory)
    texts, images = {path: data.decode(errors="replace") for path, data in tree.contents.items()}, entry_images(tree)
    scripts = {path: text for path, text in texts.items() if path.endswith(boot_tree.SCRIPT) and _is_own(tree, path, images)}
    below_pointer = tree.below(tree.version_path(tree.current)) if tree.current else {}
    pointed = (tree.path(release_layout.CURRENT, path) for path in below_pointer)
    files = [*tree.entries, *pointed, *_entries_of_versions(tree)]
    for version, address in moved_versions(tree, url).items():
        folder = f"{tree.version_path(version)}/"
        of_version = {path: scripts.pop(path) for path in list(scripts) if path.startswith(folder)}
        yield from script_links.leading_out(address, of_version, files, factory)
    yield from script_links.leading_out(url or url_of(tree), scripts, files, factory)
    # No field of a manifest is an address that anything is loaded from, so only mentions of the factory count in it.
    manifests = {path: text for path, text in texts.items() if path.endswith(f"/{image_manifest.MANIFEST}")}
    yield from detachment.mentions_in(manifests, factory)
    yield from hard_links(tree)


def moved_versions(tree: ReleaseTree, url: str = "") -> dict[str, str]:
    """Return version → address from which nodes fetch it, for versions published at another address of the folder than `url`.

    An empty `url` stands for the address that the boot entries name. The current version counts only after a rollback to it: one
    that was published last must be at the address of today.
    """
    here, strict = url.rstrip("/") or url_of(tree), "" if is_rolled_back(tree) else tree.current
    addresses = {version: version_url(tree, version) for version in tree.versions if version != strict} if here else {}
    return {version: address for version, address in addresses.items() if address not in ("", here)}


def is_rolled_back(tree: ReleaseTree) -> bool:
    """Return True if the recorded history says that a rollback went to the current version."""
    switches = tree.recorded_history
    return bool(switches) and switches[-1].rollback and switches[-1].to == tree.current


def last_published(tree: ReleaseTree) -> str:
    """Return the version that the last publication made current; empty if the history has none."""
    return next((switch.to for switch in reversed(tree.recorded_history) if not switch.rollback), "")


def moved_sentences(tree: ReleaseTree, url: str = "") -> tuple[str, ...]:
    """Return a sentence about each version that nodes fetch from another address (see `moved_versions`)."""
    return tuple(
        f"{tree.version_path(version)}: nodes that boot it fetch from {address}, where the tree was then"
        for version, address in moved_versions(tree, url).items()
    )


def version_url(tree: ReleaseTree, version: str) -> str:
    """Return the address of the release folder that all scripts of a version name; empty if they name several or none."""
    folder = tree.version_path(version, boot_tree.BOOT)
    return _agreed_url((_text(tree, f"{folder}/{name}") for name in tree.names(folder)), tree.product)


def url_of(tree: ReleaseTree) -> str:
    """Return the address of the release folder that all boot entries of the image name; empty if they name several or none."""
    names = (name for name, image in entry_images(tree).items() if image == tree.product)
    return _agreed_url((_text(tree, f"{boot_tree.BOOT}/{name}{boot_tree.SCRIPT}") for name in names), tree.product)


def _agreed_url(texts: Iterable[str], image: str) -> str:
    urls = script_links.tree_urls(texts, image)
    return urls[0] if len(urls) == 1 else ""


def _text(tree: ReleaseTree, path: str) -> str:
    return tree.contents.get(path, b"").decode(errors="replace")


def _is_own(tree: ReleaseTree, path: str, images: Mapping[str, str]) -> bool:
    """Return True for scripts of this image, and for boot entries that lead to this image or to none."""
    name = path.removeprefix(f"{boot_tree.BOOT}/")
    if name == path or path == boot_tree.START_SCRIPT:
        return True
    return images.get(name.removesuffix(boot_tree.SCRIPT)) in (tree.product, "")


def _entries_of_versions(tree: ReleaseTree) -> set[str]:
    """Return the paths of the boot entries of all groups and machines that any version has a script for.

    A machine that booted an old version begins again at its entry even if the entry was removed since; `image_verification` reports
    the missing ones.
    """
    names = (name for name in tree.below(tree.path(release_layout.VERSIONS)) if name.endswith(boot_tree.SCRIPT))
    return {f"{boot_tree.BOOT}/{name.rpartition('/')[2]}" for name in names}
