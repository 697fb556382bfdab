"""Layout of a release folder from which nodes boot; `steps.contract.release_layout` has the part common to all products. Pure.

ROOT/NAME/versions/VERSION/   manifest.json(.sig) root.squashfs vmlinuz initrd.img root.oci.tar tests.json boot/GROUP.ipxe
                              provenance.json test-result.json: statements about these files
                              boot/mac-52-54-00-12-34-56.ipxe: a machine that a group names; chains to its group's, beside it
ROOT/NAME/current             the pointer; a group's script below it names its version in every path
ROOT/boot/GROUP.ipxe          boot entry of a group of nodes: chains to NAME/current/boot/GROUP.ipxe; that of a machine alike
ROOT/boot/boot.ipxe           start script for every node: chains to the machine's own entry, else to that of group `default`
ROOT/nodes/NODE.json          the last report of each node
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON, canonical, digest_bytes
from steps.contract.release_layout import ReleaseTarget
from steps.nodeimage.contract.image_tests import ImageTestOutcome, ImageTestResult

BOOT: Final = "boot"
"""Folder of boot scripts: within a version those of groups and machines, below ROOT their boot entries."""
GROUPS: Final = "image.groups.json"
"""Name in the tasks folder of the file with a target's groups and the machines that they name; tasks name it by its digest."""
TESTS: Final = "tests.json"
"""File of a version with the results of the tests that let it be published, and the origin of its recipe (see `Tested`)."""
SCRIPT: Final = ".ipxe"
START: Final = "boot"
"""Name of the start script, which no group may have."""
START_SCRIPT: Final = f"{BOOT}/{START}{SCRIPT}"
"""Path of the start script below ROOT."""
DEFAULT: Final = "default"
"""Name of the group whose entry boots all machines that no group names."""
MACHINE: Final = "mac-"
"""Prefix of the name of a machine's script, before its MAC address."""
REPUBLISH_HINT: Final = "change the recipe, or publish it again on purpose: bringup image build --again"
"""Advice in messages about a version that a rollback left: it is not built or published again without a change or an order."""
_MACHINE: Final = re.compile(rf"{MACHINE}[0-9a-f]{{2}}(-[0-9a-f]{{2}}){{5}}")


def machine_name(mac: str) -> str:
    """Return the name of a machine's script, such as `mac-52-54-00-12-34-56`, which iPXE makes by `${netX/mac:hexhyp}`."""
    return f"{MACHINE}{mac.replace(':', '-')}"


def mac_of(name: str) -> str:
    """Return the MAC address, with colons, in the name of a machine's script."""
    return name.removeprefix(MACHINE).replace("-", ":")


def mac_in(text: str) -> str:
    """Return the MAC address in a node's report, in lower case with colons.

    It is empty for other texts and for all zeros, which is the address of no network card.
    """
    mac = text.strip().lower().replace("-", ":")
    return mac if is_machine(machine_name(mac)) and mac.strip("0:") else ""


def is_machine(name: str) -> bool:
    """Return True if the name of a script is that of a machine, False if it is that of a group."""
    return _MACHINE.fullmatch(name) is not None


class BootGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Group of nodes that boot alike: its additional kernel arguments, and its nodes, MAC address (`52:54:00:…`) → host name."""

    name: str
    kernel_arguments: tuple[str, ...] = ()
    nodes: dict[str, str] = {}


class GroupsError(ValueError):
    """Error: the file `image.groups.json` cannot be read or is not the one that the task was made for; the message says which."""


def encode_groups(groups: Sequence[BootGroup]) -> bytes:
    """Return the bytes of the file `image.groups.json` for these groups."""
    return canonical(list(groups))


def groups_digest(groups: Sequence[BootGroup]) -> str:
    """Return the digest of `image.groups.json` for these groups, by which tasks name the file."""
    return digest_bytes(encode_groups(groups))


def decode_groups(data: bytes, digest: str) -> tuple[BootGroup, ...]:
    """Return the groups in the bytes of `image.groups.json`. Raises GroupsError if they have another digest or cannot be read."""
    if digest_bytes(data) != digest:
        raise GroupsError(f"{GROUPS} has the digest {digest_bytes(data)}, the task was made for {digest}")
    try:
        return msgspec.json.decode(data, type=tuple[BootGroup, ...])
    except UNREADABLE_JSON as error:
        raise GroupsError(f"{GROUPS}: {error}") from error


class PublishTarget(ReleaseTarget, frozen=True, kw_only=True, omit_defaults=True):
    """Release folder that images are published to, on this machine or a boot server; nodes reach its `root` by HTTP at `url`.

    In a task `groups` is empty, because the file `image.groups.json` beside the task has them.
    """

    url: str
    groups: tuple[BootGroup, ...] = ()
    report: str = ""
    """URL of the server that takes nodes' reports (`POST URL/report`) and keeps them in `ROOT/nodes`; empty: nodes send none."""
    boot_key: str = ""
    """Name of the secret file with key and certificate that sign kernel and initrd for iPXE; empty: iPXE checks no signature."""


class Tested(Struct, frozen=True, kw_only=True):
    """Content of a version's `tests.json`: origin of the recipe (a commit, the version of bringup), and test results by task.

    The results have durations and messages; the manifest has the outcomes alone. `attested`: the version has the statements
    provenance.json and test-result.json, which those of earlier releases of bringup have not. `signed_until` is the end of the
    certificate by which iPXE verifies kernel and initrd, as `2027-11-30 23:59:59Z`; empty if it verifies nothing.
    """

    origin: str = ""
    results: dict[str, list[ImageTestResult]] = {}
    attested: bool = False
    signed_until: str = ""

    @property
    def encoded(self) -> bytes:
        """Bytes of the file `tests.json`."""
        return canonical(self) + b"\n"

    @property
    def outcomes(self) -> dict[str, dict[str, ImageTestOutcome]]:
        """Task → test name → outcome. A test that ran on several machines has passed if it passed on all of them."""
        # The last result of a name counts, so failures are sorted behind passes.
        return {
            task: {
                result.name: result.outcome
                for result in sorted(results, key=lambda result: result.outcome is not ImageTestOutcome.PASS)
            }
            for task, results in self.results.items()
        }


class NodeSeen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Last report of a node, as `ROOT/nodes/NODE.json` keeps it.

    `image` is the digest of the root file system that the node fetched, `version` the one in its boot script (older images send
    none), `manifest` the digest of its manifest (from reporters that know it), `at` the time of its boot (UTC seconds).
    """

    node: str
    image: str
    version: str = ""
    manifest: str = ""
    mac: str = ""
    at: float = 0.0
