"""Signatures of a version: one over its manifest, one over its list of digests, which covers all other files."""

from collections.abc import Mapping
from pathlib import Path

from steps.clients import signature
from steps.clients.releases.release_kind import ReleaseKind
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import release_layout
from steps.contract.release_layout import ReleaseTarget
from steps.errors import BadTask

GOOD, BAD, NONE, UNKNOWN = "good", "bad", "none", "unknown"
_PRINCIPAL = "publisher"
"""Name of all trusted keys for ssh-keygen: it makes no difference which of them signed."""


def signed_files(kind: ReleaseKind) -> dict[str, str]:
    """Return name of each signed file of a version → name of the file with its signature."""
    return {kind.layout.manifest: kind.layout.signature, release_layout.SUMS: release_layout.SUMS_SIGNATURE}


def sign(kind: ReleaseKind, files: Mapping[str, bytes], target: ReleaseTarget, secrets: Path) -> dict[str, bytes]:
    """Return name of the signature file → signature; empty if the target has no key.

    Raises BadTask if the key cannot sign, or if the target does not trust it, because readers would refuse its signatures.
    """
    if not target.key:
        return {}
    key = secrets / target.key
    if "/" in target.key or target.key.startswith(".") or not key.is_file():
        raise BadTask(f"there is no secret file {target.key} to sign with", hint="see publish.sign in the spec")
    signed = signed_files(kind)
    signatures = {name: signature.sign(files[file], key, kind.namespace) for file, name in signed.items()}
    for file, name in signed.items():
        if target.signers and _problem(kind, files[file], signatures[name], target.signers):
            own = signature.key_of(files[file], signatures[name], kind.namespace)
            hint = "add the public key of publish.sign to publish.signers, or sign with the key that is there"
            raise BadTask(f"{target.key} signs as {own}, which is none of the keys that this place trusts", hint=hint)
    return signatures


def prove(kind: ReleaseKind, target: ReleaseTarget, secrets: Path) -> None:
    """Sign a sample, so that a bad key is found before anything is written. Raises BadTask as `sign` does."""
    sign(kind, dict.fromkeys(signed_files(kind), b"whether the key is one that is trusted\n"), target, secrets)


def state(kind: ReleaseKind, tree: ReleaseTree, version: str, signers: tuple[str, ...]) -> str:
    """Return the state of a version's signatures: `good`, `bad`, `none` or `unknown`.

    `none`: it has no signature. `unknown`: it has some, but no key is trusted. `good`: trusted keys made both. `bad`: one is wrong
    or missing.
    """
    signatures = {file: tree.contents.get(tree.version_path(version, name)) for file, name in signed_files(kind).items()}
    if not any(signatures.values()):
        return NONE
    if not signers:
        return UNKNOWN
    data = {file: tree.contents.get(tree.version_path(version, file)) for file in signatures}
    return BAD if any(_problem(kind, data[file], signatures[file], signers) for file in signatures) else GOOD


def unfitting(kind: ReleaseKind, tree: ReleaseTree, version: str) -> list[tuple[str, str]]:
    """Return file and signature file where the signature is missing, or is not over these bytes by any key, trusted or not."""
    return [
        (file, name)
        for file, name in signed_files(kind).items()
        if not signature.key_of(
            tree.contents.get(tree.version_path(version, file), b""),
            tree.contents.get(tree.version_path(version, name), b""),
            kind.namespace,
        )
    ]


def suits(kind: ReleaseKind, tree: ReleaseTree, version: str, target: ReleaseTarget) -> bool:
    """Return True if a version's signatures suit the target: signed if the target has a key, and never wrongly.

    Signatures that cannot be checked, because no key is trusted, suit as well.
    """
    allowed = (GOOD, UNKNOWN) if target.key else (GOOD, NONE, UNKNOWN)
    return state(kind, tree, version, target.signers) in allowed


def _problem(kind: ReleaseKind, data: bytes | None, signed: bytes | None, signers: tuple[str, ...]) -> str:
    if data is None or not signed:
        return "not signed"
    return signature.verify(data, signed, _PRINCIPAL, signers, kind.namespace)
