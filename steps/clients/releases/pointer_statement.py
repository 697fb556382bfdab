"""The signed statement beside a pointer: which version is current, since when, and until when that may be believed.

Signatures of versions last for ever, so whoever can write a tree could lead its pointer back to an old version with known holes,
and every signature would still be good. The statement, which only the publisher's key can make, names one version and expires
(as the timestamp of The Update Framework, https://theupdateframework.github.io/specification/latest/#timestamp).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients import signature
from steps.clients.releases.release_kind import ReleaseKind, TreeProblem
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract.canonical import UNREADABLE_JSON, canonical
from steps.contract.release_layout import ReleaseTarget
from steps.errors import BadTask

LIFETIME = 90 * 86400.0
"""Seconds for which a statement holds: longer than any sensible pause between two rebuilds."""
_CLOCK_DIFFERENCE = 3600.0
"""Seconds by which the publisher's clock may be ahead of a reader's."""
_SIGNER = "publisher"
SIGNED, KEPT, MISSING, NONE = "signed", "kept", "missing", "none"
"""Outcomes of a rollback for the statement (see `RollbackResult`)."""
_MISSING = "is missing: nobody can tell if the pointer was led back to an old version; publish, or roll back to it with --sign-key"


class PointerStatement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The statement: product, current version, times of making and expiry (UTC seconds), and a signature over all other fields."""

    product: str
    version: str
    at: float
    expires: float
    signature: str = ""

    @property
    def signed_bytes(self) -> bytes:
        """Return the bytes that the signature covers."""
        return canonical(msgspec.structs.replace(self, signature=""))


def path(tree: ReleaseTree) -> str:
    """Return the path of the statement below the root of the tree."""
    return tree.path(f"{tree.layout.pointer}.json")


def make(kind: ReleaseKind, product: str, version: str, target: ReleaseTarget, secrets: Path) -> bytes:
    """Return a new statement signed with the target's key; empty bytes if it has none. Raises BadTask if the key cannot sign."""
    return sign(kind, product, version, secrets / target.key) if target.key else b""


def sign(kind: ReleaseKind, product: str, version: str, key: Path, signers: tuple[str, ...] = ()) -> bytes:
    """Return a new statement signed with a private key.

    Raises BadTask if the key cannot sign, or if it is none of `signers` where these are given: readers would refuse its statement.
    """
    now = round(time.time(), 3)
    statement = PointerStatement(product=product, version=version, at=now, expires=now + LIFETIME)
    data = statement.signed_bytes
    signed = signature.sign(data, key, kind.namespace)
    if signers and signature.verify(data, signed, _SIGNER, signers, kind.namespace):
        own = signature.key_of(data, signed, kind.namespace)
        raise BadTask(f"{key.name} signs as {own}, which is none of the trusted keys", hint="sign with the publisher's key")
    return canonical(msgspec.structs.replace(statement, signature=signed.decode()))


def is_fresh(kind: ReleaseKind, tree: ReleaseTree, target: ReleaseTarget) -> bool:
    """Return True if a target needs no statement, or its statement is good and in the first half of its life."""
    if not target.key:
        return True
    statement = _read(tree)
    in_time = statement is not None and statement.expires - time.time() > LIFETIME / 2
    return in_time and not any(problems(kind, tree, target.signers, required=True))


def problems(kind: ReleaseKind, tree: ReleaseTree, signers: tuple[str, ...], *, required: bool) -> Iterator[TreeProblem]:
    """Yield what is wrong with the statement of a tree. `required`: that there is none is wrong too.

    Without `signers` it is enough that some key made the signature.
    """
    place = path(tree)
    statement = _read(tree)
    if place not in tree.entries:
        if required:
            yield TreeProblem(place=place, why=_MISSING)
        return
    if statement is None:
        yield TreeProblem(place=place, why="cannot be read as a statement about the pointer")
        return
    data, signed = statement.signed_bytes, statement.signature.encode()
    if signers and signature.verify(data, signed, _SIGNER, signers, kind.namespace):
        yield TreeProblem(place=place, why="has a signature that no trusted key made over these bytes")
    elif not signers and not signature.key_of(data, signed, kind.namespace):
        yield TreeProblem(place=place, why="has a signature that is not over these bytes")
    if (statement.product, statement.version) != (tree.product, tree.current):
        why = f"says that {statement.product} {statement.version} is current, but the pointer leads to {tree.current or 'none'}"
        yield TreeProblem(place=place, why=why)
    if statement.at > time.time() + _CLOCK_DIFFERENCE:
        why = "was made in the future, so its expiry says nothing: correct the clock here or the publisher's, and publish again"
        yield TreeProblem(place=place, why=why)
    if statement.expires < time.time():
        day = time.strftime("%Y-%m-%d", time.gmtime(max(0.0, statement.expires)))
        yield TreeProblem(place=place, why=f"expired on {day}: publish again, which renews it, if the version is still the newest")


def _read(tree: ReleaseTree) -> PointerStatement | None:
    try:
        return msgspec.json.decode(tree.contents.get(path(tree), b""), type=PointerStatement)
    except UNREADABLE_JSON:
        return None
