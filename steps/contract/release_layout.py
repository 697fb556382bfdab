"""Layout and rules of a release tree: versions that are never overwritten, and a pointer that is switched by rename. Pure.

ROOT/PRODUCT/versions/VERSION/   the files of one release, its manifest and SHA256SUMS
ROOT/PRODUCT/current             symbolic link to versions/VERSION: the pointer
ROOT/PRODUCT/history.jsonl       one line for each switch of the pointer
ROOT/PRODUCT/incoming/           files that are being copied in, and lock files; readers never look there
ROOT/nodes/NODE.json             the last report of each node
"""

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract import plain_text
from steps.contract.canonical import UNREADABLE_JSON, canonical, digest_bytes

VERSIONS, CURRENT, HISTORY, INCOMING, NODES = "versions", "current", "history.jsonl", "incoming", "nodes"
SUMS: Final = "SHA256SUMS"
"""Name of the file of digests in a release, in the format of `sha256sum`."""
SUMS_SIGNATURE: Final = "SHA256SUMS.sig"
LOCK: Final = ".lock."
"""Prefix of lock files in `incoming`. A number follows; the highest number counts; an empty file means that the lock is free."""
CLAIM: Final = ".claim."
"""Prefix of the files in `incoming` by which processes ask for the lock."""
_SUM = re.compile(r"([0-9a-f]{64}) [ *]([^\0\n]+)")


class ReleaseError(ValueError):
    """A file of a release tree has a form that this version cannot read; the message names the file."""


class ReleaseFile(Struct, frozen=True, kw_only=True):
    """A file of a release: path within the release, digest `sha256:…`, and size in bytes."""

    name: str
    digest: str
    size: int


class ReleaseTarget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place that releases are published to: folder `root` on this machine (or a mount), or on `host` by SSH.

    Retention keeps the newest `keep` versions.
    """

    root: str
    host: str = ""
    user: str = ""
    port: int = 22
    keep: int = 3
    key: str = ""
    """Name of the secret file with the key that signs releases; empty: unsigned."""
    ssh_key: str = ""
    """Name of the secret file with the SSH key for `host`."""
    known_hosts: str = ""
    """Name of the file with the host's public key, in the secrets folder."""
    signers: tuple[str, ...] = ()
    """Public keys whose signatures are trusted."""


class Switch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `history.jsonl`: a switch of the pointer from version `before` (empty: none) to version `to`.

    `at` is the time in UTC seconds, `by` the run or command. `rollback`: a person left `before` on purpose.
    """

    to: str
    before: str = ""
    at: float = 0.0
    by: str = ""
    rollback: bool = False


class UsageReport(Struct, frozen=True, kw_only=True):
    """Report of a node about the release that it runs: its version, or a digest by which the version can be found, or both.

    `manifest` is the digest of the manifest. `address` identifies the machine whatever its name is, as the node wrote it; `machine`
    is the same address in normal form, for comparisons. `at` is the start of the use (UTC seconds).
    """

    node: str
    version: str = ""
    digest: str = ""
    manifest: str = ""
    address: str = ""
    machine: str = ""
    at: float = 0.0

    @property
    def is_readable(self) -> bool:
        """Return True if the report names a release, by version, digest or manifest."""
        return bool(self.version or self.digest or self.manifest)


def version_name(number: int, manifest: str) -> str:
    """Return a version's name, such as `0007-3fede354d804`: a number, and the start of the digest (`sha256:…`) of its manifest."""
    return f"{number:04d}-{manifest.removeprefix('sha256:')[:12]}"


def number_of(version: str) -> int:
    """Return the number in a version's name; -1 for any other text."""
    head, dash, tail = version.partition("-")
    return int(head) if dash and head.isdigit() and len(tail) == 12 else -1


def encode_sums(files: Mapping[str, bytes], parts: Iterable[ReleaseFile]) -> bytes:
    """Return the bytes of SHA256SUMS over small `files` (path → bytes), hashed here, and `parts`, whose digests are known."""
    digests = {name: digest_bytes(data) for name, data in files.items()} | {part.name: part.digest for part in parts}
    return "".join(f"{digests[name].removeprefix('sha256:')}  {name}\n" for name in sorted(digests)).encode()


def read_sums(data: bytes) -> dict[str, str]:
    """Return path → digest `sha256:…` from SHA256SUMS. Raises ReleaseError for a line of another form."""
    digests: dict[str, str] = {}
    for number, line in enumerate(data.decode(errors="replace").splitlines(), start=1):
        match = _SUM.fullmatch(line)
        if not match:
            raise ReleaseError(f"{SUMS} line {number} is no digest and name")
        digests[match[2]] = f"sha256:{match[1]}"
    return digests


def history_line(switch: Switch) -> bytes:
    """Return one line of `history.jsonl`."""
    return canonical(switch) + b"\n"


def read_history(data: bytes) -> tuple[tuple[Switch, ...], int]:
    """Return the switches in `history.jsonl`, oldest first, and the number of lines that cannot be read."""
    switches, unreadable = [], 0
    for line in data.splitlines():
        try:
            switches.append(msgspec.json.decode(line, type=Switch))
        except UNREADABLE_JSON:
            unreadable += 1
    return tuple(switches), unreadable


def next_number(versions: Iterable[str], history: Iterable[Switch]) -> int:
    """Return a version number that is higher than all numbers in the release folder and in the history."""
    # the history is included, so that numbers of removed versions are not used again
    return max([0, *map(number_of, versions), *(number_of(switch.to) for switch in history)]) + 1


def previous(history: Sequence[Switch], current: str, there: Collection[str]) -> str:
    """Return the version that a rollback from `current` goes to; empty if there is none.

    It is the last version before `current` that is still `there`. Versions that an earlier rollback left do not count.
    """
    path: list[str] = []
    for switch in history:
        # a rollback cancels everything after its target
        if switch.rollback and switch.to in path:
            del path[path.index(switch.to) + 1 :]
            continue
        gone = {switch.to, switch.before} if switch.rollback else {switch.to}
        path = [*(name for name in path if name not in gone), switch.to]
    if current in path:
        del path[path.index(current) :]
    return next((name for name in reversed(path) if name in there), "")


def abandoning_rollback(history: Sequence[Switch], versions: Collection[str]) -> Switch | None:
    """Return the rollback that left one of `versions`, which all hold the same release.

    None if one of them became current again since then, or if a publication replaced them without a rollback.
    """
    for switch in reversed(history):
        if switch.to in versions or switch.before in versions:
            return switch if switch.rollback and switch.to not in versions else None
    return None


def rolled_back_sentence(rollback: Switch) -> str:
    """Return the sentence that says who left a version by a rollback, and when."""
    who, when = rollback.by.removeprefix("rollback by "), time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(rollback.at))
    return f"{rollback.before} was left by a rollback (by {plain_text.line(who)}, {when})"


def retained_versions(versions: Iterable[str], keep: int, protected: Iterable[str]) -> tuple[str, ...]:
    """Return the versions that retention keeps: the newest `keep`, and `protected` ones (current, previous, those on nodes)."""
    ordered = sorted(versions, key=lambda name: (number_of(name), name))
    newest = set(ordered[-keep:] if keep > 0 else ())
    stay = newest | set(protected)
    # folders that are no versions are never removed
    return tuple(name for name in ordered if name in stay or number_of(name) < 0)
