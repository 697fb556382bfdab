"""Boot entries in ROOT/boot: the scripts that groups and machines load first, and the start script that finds a machine's own.

All images share this folder. Entries follow the version that is current, also after a rollback.
"""

from collections.abc import Collection, Mapping

from steps.clients.releases.release_kind import SharedFiles
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import release_layout
from steps.errors import BadTask, Refused
from steps.nodeimage.contract import boot_scripts, boot_tree
from steps.nodeimage.contract.boot_scripts import BootScriptError
from steps.nodeimage.contract.boot_tree import PublishTarget
from steps.nodeimage.publishing import external_links, image_versions

_COMMON = frozenset({f"{boot_tree.START}{boot_tree.SCRIPT}"})
"""Name of the start script, which names machines of all images, so that each publication writes it."""


def names(target: PublishTarget) -> frozenset[str]:
    """Return the names of all boot scripts of a version for this target: its groups, and the machines that they name."""
    machines = {boot_tree.machine_name(mac) for group in target.groups for mac in group.nodes}
    return frozenset(group.name for group in target.groups) | machines


def for_target(tree: ReleaseTree, target: PublishTarget) -> SharedFiles:
    """Return the boot entries of a target's groups and machines, and those to remove. Raises BadTask if they cannot be rendered."""
    own, images = names(target), external_links.entry_images(tree)
    return _entries(tree, target.url, sorted(own), own | set(_foreign(tree, images)), _stale(tree, own, images))


def for_version(tree: ReleaseTree, version: str) -> SharedFiles:
    """Return the boot entries of the machines that a version in the release folder names, for a rollback to it.

    Machines that boot another image since are left out. Entries of groups stay as they are.
    """
    url, images, scripts = external_links.url_of(tree), external_links.entry_images(tree), image_versions.scripts(tree, version)
    stale = _stale(tree, scripts, images)
    if not url:
        return SharedFiles(stale=stale, common=_COMMON)
    named = (name for name in scripts if boot_tree.is_machine(name))
    machines = [name for name in named if images.get(name, "") in ("", tree.product)]
    return _entries(tree, url, machines, {*_foreign(tree, images), *machines}, stale)


def _entries(tree: ReleaseTree, url: str, own: Collection[str], known: Collection[str], stale: tuple[str, ...]) -> SharedFiles:
    try:
        # The start script comes first: a machine that it knows waits for its entry.
        scripts = {boot_tree.START: boot_scripts.start_script(url, known)}
        scripts |= {name: boot_scripts.entry_script(url, tree.product, name) for name in own}
    except BootScriptError as error:
        raise BadTask(str(error), hint="see publish in the spec") from error
    files = {f"{name}{boot_tree.SCRIPT}": data for name, data in scripts.items()}
    return SharedFiles(files=files, stale=stale, common=_COMMON)


def _foreign(tree: ReleaseTree, images: Mapping[str, str]) -> list[str]:
    """Return the names of all boot entries except those of this image's machines, which come and go with its versions."""
    return [name for name, image in images.items() if image != tree.product or not boot_tree.is_machine(name)]


def _stale(tree: ReleaseTree, own: Collection[str], images: Mapping[str, str]) -> tuple[str, ...]:
    """Return the file names of machines' entries that lead to this image though the machines are not its `own` any more."""
    machines = (name for name, image in images.items() if image == tree.product and boot_tree.is_machine(name))
    return tuple(f"{name}{boot_tree.SCRIPT}" for name in machines if name not in own)


def refuse_foreign(tree: ReleaseTree, target: PublishTarget) -> None:
    """Raise Refused if a publication would take a group or machine from another image, or leave a group without script."""
    own = names(target)
    for name, image in external_links.entry_images(tree).items():
        file = f"{boot_tree.BOOT}/{name}{boot_tree.SCRIPT}"
        if name in own and image not in (tree.product, ""):
            noun = "machine" if boot_tree.is_machine(name) else "group"
            hint = f"take the {noun} out of one of the two specs, or remove {file} by hand"
            raise Refused(f"{noun} {name} boots the image {image}, as {file} says", hint=hint)
        if name not in own and image == tree.product and not boot_tree.is_machine(name):
            hint = f"put the group back into publish.groups, or remove {file} by hand when no node loads it any more"
            raise Refused(f"nodes load {file}, but the spec has no group {name}: they could boot nothing", hint=hint)


def refuse_rollback(tree: ReleaseTree, version: str, *, is_named: bool) -> None:
    """Raise Refused for a rollback to a version without a script for a group that boots now, or that nodes fetch from elsewhere.

    With `is_named` a person named the version, and thereby vouches for its address.
    """
    _refuse_stranded(tree, version)
    if not is_named and version != tree.current and (address := external_links.moved_versions(tree).get(version)):
        here, number = external_links.url_of(tree), release_layout.number_of(version)
        text = f"nodes would fetch {version} from {address}, where the tree was when it was published; now it is {here}"
        hint = f"where that still serves this tree: bringup image rollback {number}; else build that image again"
        raise Refused(text, hint=hint)


def _refuse_stranded(tree: ReleaseTree, version: str) -> None:
    booting = image_versions.scripts(tree, tree.current) if tree.current else {}
    images = external_links.entry_images(tree)
    # Entries of machines go back with the version.
    groups = {name for name in booting if images.get(name) == tree.product and not boot_tree.is_machine(name)}
    if lost := sorted(groups - set(image_versions.scripts(tree, version))):
        files = ", ".join(f"{boot_tree.BOOT}/{group}{boot_tree.SCRIPT}" for group in lost)
        fit = ", ".join(name for name in tree.versions if groups <= set(image_versions.scripts(tree, name)))
        hint = f"go back to one that has: {fit}; or remove {files} by hand when no node loads it any more"
        raise Refused(f"{version} has no boot script for {', '.join(lost)}: their nodes could boot nothing", hint=hint)
