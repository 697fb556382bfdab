"""Signatures of a version: over its manifest and over its list of digests, which covers all the rest."""

from collections.abc import Mapping
from pathlib import Path

from steps.clients import signature
from steps.clients.published.tree import Tree
from steps.contract.image import manifest, published
from steps.contract.image.published import Place
from steps.errors import BadTask

SIGNED = {manifest.MANIFEST: manifest.SIGNATURE, published.SUMS: published.SUMS_SIGNATURE}
"""What is signed → the file with its signature."""
GOOD, BAD, NONE, UNKNOWN = "good", "bad", "none", "unknown"
_WHO = "publisher"
"""Name of all trusted keys: which of them signed makes no difference."""


def sign(files: Mapping[str, bytes], place: Place, secrets: Path) -> dict[str, bytes]:
    """The files of signatures; nothing where the place has no key. Raises BadTask where the key cannot sign, or where the place
    trusts others alone: what it signs would be refused by whoever verifies it."""
    if not place.key:
        return {}
    key = secrets / place.key
    if "/" in place.key or place.key.startswith(".") or not key.is_file():
        raise BadTask(f"there is no secret file {place.key} to sign with", hint="see publish.sign in the spec")
    made = {name: signature.sign(files[signed], key, manifest.NAMESPACE) for signed, name in SIGNED.items()}
    for signed, name in SIGNED.items():
        if place.signers and _wrong(files[signed], made[name], place.signers):
            mine = signature.key_of(files[signed], made[name], manifest.NAMESPACE)
            hint = "add the public key of publish.sign to publish.signers, or sign with the key that is there"
            raise BadTask(f"{place.key} signs as {mine}, which is none of the keys that this place trusts", hint=hint)
    return made


def prove(place: Place, secrets: Path) -> None:
    """Sign something, before anything is written. Raises BadTask as `sign` does."""
    sign(dict.fromkeys(SIGNED, b"whether the key is one that is trusted\n"), place, secrets)


def state(tree: Tree, version: str, signers: tuple[str, ...]) -> str:
    """`good` where all that is signed was signed by a trusted key, `bad` where one signature is not, or only one is there, `none`
    without any, `unknown` where nobody is trusted."""
    folder = tree.path(published.VERSIONS, version)
    found = {signed: tree.contents.get(f"{folder}/{name}") for signed, name in SIGNED.items()}
    if not any(found.values()):
        return NONE
    if not signers:
        return UNKNOWN
    return BAD if any(_wrong(tree.contents.get(f"{folder}/{signed}"), found[signed], signers) for signed in SIGNED) else GOOD


def suits(tree: Tree, version: str, place: Place) -> bool:
    """Whether a version is signed as the place wants it: by a trusted key where it signs, and never wrongly."""
    allowed = (GOOD, UNKNOWN) if place.key else (GOOD, NONE, UNKNOWN)
    return state(tree, version, place.signers) in allowed


def _wrong(data: bytes | None, signed: bytes | None, signers: tuple[str, ...]) -> str:
    if data is None or not signed:
        return "not signed"
    return signature.verify(data, signed, _WHO, signers, manifest.NAMESPACE)
