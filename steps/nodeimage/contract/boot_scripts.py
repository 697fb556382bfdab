"""iPXE scripts of a published release folder: of versions, boot entries of groups and machines, and the start script. Pure."""

import re
from collections.abc import Collection

from steps.contract import release_layout
from steps.nodeimage.contract import boot_tree, image_manifest, ipxe
from steps.nodeimage.contract.boot_tree import BootGroup, PublishTarget
from steps.nodeimage.contract.image_manifest import Manifest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_URL = re.compile(r"https?://[!-~]+")


class BootScriptError(ValueError):
    """Error: a name or address cannot stand in a release folder or a boot script; the message names it."""


def name_of(text: str, what: str) -> str:
    """Return the text if it can be one part of a path and of a URL; else raise BootScriptError. `what` is what the text names."""
    if not _NAME.fullmatch(text):
        raise BootScriptError(f"{text!r} cannot be the name of {what}: letters, digits, dots, dashes and underscores, at most 64")
    return text


def base(url: str) -> str:
    """Return the URL of a release folder without a slash at its end. Raises BootScriptError for a text that is no such URL."""
    if not _URL.fullmatch(url) or any(sign in url for sign in "?#$ "):
        raise BootScriptError(f"{url!r} is no URL of a tree: write http://HOST[:PORT]/PATH, as nodes reach it")
    return url.rstrip("/")


def version_script(target: PublishTarget, version: str, manifest: Manifest, group: BootGroup) -> bytes:
    """Return the script by which the nodes of a group boot a version. Raises BootScriptError.

    Every path names the version, not the pointer `current`, because a switch of the pointer during a boot must not mix two
    versions.
    """
    folder = _folder(target.url, manifest.name, version)
    root, start = manifest.part(image_manifest.ROOT), start_url(target.url)
    entry = f"{base(target.url)}/{boot_tree.BOOT}/{group_name(group.name)}{boot_tree.SCRIPT}"
    loaded = ipxe.Loaded(
        title=f"{manifest.name} {version} for group {group_name(group.name)}",
        kernel=f"{folder}/{image_manifest.KERNEL}",
        initrd=f"{folder}/{image_manifest.INITRD}",
        root=f"{folder}/{image_manifest.ROOT}",
        image=root.digest if root else "",
        arguments=(*manifest.kernel_arguments, *group.kernel_arguments),
        report=target.report,
        machines=group.nodes,
        others=tuple(mac for other in target.groups if other.name != group.name for mac in other.nodes),
        start=start,
        entry=entry,
        signed=bool(target.boot_key),
        # Groups without machines are known to the DHCP server alone, so their nodes begin again at their own entry.
        again=start if group.nodes or group.name == boot_tree.DEFAULT else entry,
    )
    try:
        return ipxe.script(loaded).encode()
    except ipxe.ScriptError as error:
        raise BootScriptError(f"group {group.name}: {error}") from error


def machine_script(target: PublishTarget, version: str, image: str, group: str) -> bytes:
    """Return the script of one machine, which chains to its group's script in the same version. Raises BootScriptError."""
    address = f"{_folder(target.url, image, version)}/{boot_tree.BOOT}/{group_name(group)}{boot_tree.SCRIPT}"
    return ipxe.chain(address, start_url(target.url)).encode()


def entry_script(url: str, image: str, name: str) -> bytes:
    """Return the boot entry of a group or machine, which chains to its script in the current version. Raises BootScriptError."""
    below = f"{name_of(image, 'an image')}/{release_layout.CURRENT}/{boot_tree.BOOT}/{name_of(name, 'a group')}{boot_tree.SCRIPT}"
    return ipxe.chain(f"{base(url)}/{below}", start_url(url) if boot_tree.is_machine(name) else "").encode()


def start_script(url: str, names: Collection[str]) -> bytes:
    """Return the start script, which sends a machine to its own boot entry or that of group `default`. Raises BootScriptError.

    `names` are the groups and machines of all images that have an entry in ROOT/boot.
    """
    folder = f"{base(url)}/{boot_tree.BOOT}"
    all_others = f"{folder}/{boot_tree.DEFAULT}{boot_tree.SCRIPT}" if boot_tree.DEFAULT in names else ""
    known = [boot_tree.mac_of(name) for name in names if boot_tree.is_machine(name)]
    return ipxe.first(f"{folder}/{boot_tree.MACHINE}", known, all_others, start_url(url)).encode()


def start_url(url: str) -> str:
    """Return the URL of the start script in the release folder at `url`. Raises BootScriptError."""
    return f"{base(url)}/{boot_tree.START_SCRIPT}"


def group_name(text: str) -> str:
    """Return the text if it can be the name of a group; else raise BootScriptError."""
    if text == boot_tree.START or boot_tree.is_machine(text):
        raise BootScriptError(f"{text!r} cannot be the name of a group: bringup's own script in boot has it")
    return name_of(text, "a group")


def _folder(url: str, image: str, version: str) -> str:
    return f"{base(url)}/{name_of(image, 'an image')}/{release_layout.VERSIONS}/{version}"
