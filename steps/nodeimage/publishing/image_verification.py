"""Verification of the boot scripts, the boot entries and the start script in a release folder of node images. Pure."""

from collections.abc import Iterator

from steps.clients.releases.release_kind import TreeProblem
from steps.clients.releases.release_tree import ReleaseTree
from steps.nodeimage.contract import boot_scripts, boot_tree
from steps.nodeimage.contract.boot_scripts import BootScriptError
from steps.nodeimage.publishing import external_links, image_versions

_CHANGED = "is not as this bringup writes it; where an older one did, the next publication writes it anew"


def script_problems(tree: ReleaseTree, version: str) -> Iterator[TreeProblem]:
    """Yield the problems of a version's boot scripts: there must be one, and each must name this version alone."""
    folder, scripts = tree.version_path(version, boot_tree.BOOT), image_versions.scripts(tree, version)
    if not scripts:
        yield TreeProblem(place=folder, why="has no boot script")
    for name, named in scripts.items():
        if named != version:
            why = f"names the version {named}" if named else "names no single version in all its paths"
            yield TreeProblem(place=f"{folder}/{name}{boot_tree.SCRIPT}", why=why)


def entry_problems(tree: ReleaseTree, url: str) -> Iterator[TreeProblem]:
    """Yield the problems of boot entries and start script: each must have the bytes that bringup writes for the address `url`."""
    scripts = set(image_versions.scripts(tree, tree.current)) if tree.current else set()
    images = external_links.entry_images(tree)
    moved = {name for name, image in images.items() if boot_tree.is_machine(name) and image in tree.products}
    for name in sorted(scripts):
        if images.get(name) != tree.product and name not in moved:
            why = "is missing" if name not in images else "does not lead to this image's pointer"
            yield TreeProblem(place=_path(name), why=why)
    for name in sorted(name for name, image in images.items() if image == tree.product and name not in scripts and tree.current):
        yield TreeProblem(place=_path(name), why=f"leads to a script that {tree.current} has not")
    for name, image in sorted(images.items()):
        if url and image in tree.products and tree.contents.get(_path(name)) != _expected(url, image, name):
            yield TreeProblem(place=_path(name), why=_CHANGED)
        elif image and image not in tree.products:
            yield TreeProblem(place=_path(name), why=f"leads to the image {image}, which is not here")
        elif not image and name not in scripts and external_links.mentions_image(tree, name):
            yield TreeProblem(place=_path(name), why=f"leads to {tree.product} in another way than bringup writes")
    start = tree.contents.get(boot_tree.START_SCRIPT)
    if url and start != boot_scripts.start_script(url, images):
        yield TreeProblem(place=boot_tree.START_SCRIPT, why="is missing" if start is None else _CHANGED)


def current_url(tree: ReleaseTree) -> str:
    """Return the address of a release folder from the scripts of the current version, else from its boot entries; empty if unknown.

    The version's list of digests covers its scripts. After a rollback the entries come first if the last published version names
    their address too, because the folder may have been elsewhere when the current version was published.
    """
    entries, last = external_links.url_of(tree), external_links.last_published(tree)
    if entries and external_links.is_rolled_back(tree) and entries == external_links.version_url(tree, last):
        return entries
    return (external_links.version_url(tree, tree.current) if tree.current else "") or entries


def _path(name: str) -> str:
    return f"{boot_tree.BOOT}/{name}{boot_tree.SCRIPT}"


def _expected(url: str, image: str, name: str) -> bytes:
    """Return the bytes of a group's or machine's boot entry; empty if the name cannot be that of a group or machine."""
    try:
        return boot_scripts.entry_script(url, image, name)
    except BootScriptError:
        return b""
