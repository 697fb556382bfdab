"""Layout of a published tree: versions that are never overwritten, and one pointer that is switched by rename.

ROOT/NAME/versions/VERSION/   manifest.json(.sig) root.squashfs vmlinuz initrd.img root.oci.tar tests.json boot/GROUP.ipxe
                              boot/mac-52-54-00-12-34-56.ipxe: a machine that a group names; chains to its group's, beside it
ROOT/NAME/current             → versions/VERSION: the pointer; a group's script below it names its version in every path
ROOT/NAME/history.jsonl       what the pointer was, one line a switch
ROOT/NAME/incoming/           what is being copied in; never read by a node
ROOT/boot/GROUP.ipxe          what a node is told to load: chains to NAME/current/boot/GROUP.ipxe; a machine's alike
ROOT/boot/boot.ipxe           what every node may be told: chains to the machine's own script, else to that of group `default`
ROOT/nodes/NODE.json          what each node reported last
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import canonical, digest_bytes
from steps.contract.image.testing import Result

VERSIONS, CURRENT, HISTORY, INCOMING, BOOT, NODES = "versions", "current", "history.jsonl", "incoming", "boot", "nodes"
GROUPS: Final = "image.groups.json"
"""Name in the tasks folder of the groups of a place, with every machine that they name; tasks name it by its digest."""
TESTS: Final = "tests.json"
"""Results of the tests that let a version be published, and where its recipe came from: `Tested`."""
SUMS: Final = "SHA256SUMS"
SUMS_SIGNATURE: Final = "SHA256SUMS.sig"
LOCK: Final = ".lock."
"""Begins the names in `incoming` of who changes this tree right now. A number follows; the highest counts; empty: given back."""
CLAIM: Final = ".claim."
"""Begins the names there with which others ask for the lock."""
SCRIPT: Final = ".ipxe"
START: Final = "boot"
"""Name of the script that finds a machine's own; no group's."""
START_SCRIPT: Final = f"{BOOT}/{START}{SCRIPT}"
"""Where that one lies, from the tree's root."""
DEFAULT: Final = "default"
"""The group of machines that no group names."""
MACHINE: Final = "mac-"
"""Begins the name of a machine's script; its address follows."""
_MACHINE: Final = re.compile(rf"{MACHINE}[0-9a-f]{{2}}(-[0-9a-f]{{2}}){{5}}")


def version_name(number: int, manifest: str) -> str:
    """`0007-3fede354d804`: the how-manieth version, and the manifest's digest. `manifest` is `sha256:…`."""
    return f"{number:04d}-{manifest.removeprefix('sha256:')[:12]}"


def number_of(version: str) -> int:
    """The number of a version's name; -1 when it is none."""
    head, dash, tail = version.partition("-")
    return int(head) if dash and head.isdigit() and len(tail) == 12 else -1


def machine_name(mac: str) -> str:
    """`mac-52-54-00-12-34-56`: the name of a machine's script, as iPXE's `${netX/mac:hexhyp}` writes its address."""
    return f"{MACHINE}{mac.replace(':', '-')}"


def mac_of(name: str) -> str:
    """The address in the name of a machine's script."""
    return name.removeprefix(MACHINE).replace("-", ":")


def mac_in(text: str) -> str:
    """The address that a node says is its own, in the form in which addresses are compared; empty where it is none, or that of no
    card: all zeros."""
    mac = text.strip().lower().replace("-", ":")
    return mac if is_machine(machine_name(mac)) and mac.strip("0:") else ""


def is_machine(name: str) -> bool:
    """Whether a script's name is that of a machine, and not of a group."""
    return _MACHINE.fullmatch(name) is not None


class Group(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes that boot alike: more kernel arguments, and which nodes by MAC address (`52:54:00:…`, lower case) → host name."""

    name: str
    kernel_arguments: tuple[str, ...] = ()
    nodes: dict[str, str] = {}


class GroupsError(ValueError):
    """The file is not that of the groups of a place; the message says why."""


def encode_groups(groups: Sequence[Group]) -> bytes:
    """The bytes of `image.groups.json`."""
    return canonical(list(groups))


def groups_digest(groups: Sequence[Group]) -> str:
    """How tasks name that file."""
    return digest_bytes(encode_groups(groups))


def decode_groups(data: bytes, digest: str) -> tuple[Group, ...]:
    """Read it. Raises GroupsError for another file than `digest` names."""
    if digest_bytes(data) != digest:
        raise GroupsError(f"{GROUPS} has the digest {digest_bytes(data)}, the task was made for {digest}")
    try:
        return msgspec.json.decode(data, type=tuple[Group, ...])
    except msgspec.MsgspecError as error:
        raise GroupsError(f"{GROUPS}: {error}") from error


class Place(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a tree lies: `root` on this machine (or a mount), or on `host` by SSH; `url` is how nodes reach `root` by HTTP. In a
    task it has no groups: a file beside it has them."""

    root: str
    url: str
    host: str = ""
    user: str = ""
    port: int = 22
    keep: int = 3
    groups: tuple[Group, ...] = ()
    key: str = ""
    """Name of the secret file with the key that signs manifests; empty: unsigned."""
    ssh_key: str = ""
    """Name of the secret file with the key for `host`."""
    known_hosts: str = ""
    """Name of the file with the host's key (in the secrets folder)."""
    signers: tuple[str, ...] = ()
    """Public keys whose signatures are trusted."""
    report: str = ""
    """URL of the server that hears nodes (`POST URL/report`) and keeps `ROOT/nodes`; empty: nodes say nothing."""


class Switch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the history: the pointer went from one version to another (empty: there was none), when (UTC seconds), in which
    run or by which command; `rollback`: on purpose, away from `before`."""

    to: str
    before: str = ""
    at: float = 0.0
    by: str = ""
    rollback: bool = False


class Tested(Struct, frozen=True, kw_only=True):
    """What a version was published upon: where its recipe came from then (a commit, bringup's version), and the results of its
    tests by task, with their times and words; the manifest says the outcomes alone."""

    origin: str = ""
    results: dict[str, list[Result]] = {}


class NodeSeen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node reported: digest of the root that it fetched, the version that its boot script named (empty: an image of before,
    which does not say), and when it had booted (UTC seconds). `manifest`: digest of that, from who knows it."""

    node: str
    image: str
    version: str = ""
    manifest: str = ""
    mac: str = ""
    at: float = 0.0
