"""Findings about a published version of any product: pointer, files, signature, and what is left in the release tree."""

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from steps.contract import plain_text, release_layout
from steps.contract.release_layout import ReleaseFile
from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown


class PublishedVersion(Protocol):
    """Part of an observation that all products have: the release tree, as it was read back after a publication."""

    @property
    def version(self) -> str:
        """Return the version that the pointer names."""

    @property
    def manifest(self) -> str:
        """Return the digest of that version's manifest; empty if it could not be read."""

    @property
    def before(self) -> str:
        """Return the version that the pointer named before; empty for the first one."""

    @property
    def present(self) -> tuple[ReleaseFile, ...]:
        """Return the files of the version."""

    @property
    def listed(self) -> tuple[ReleaseFile, ...]:
        """Return the files that its manifest lists."""

    @property
    def incoming(self) -> tuple[str, ...]:
        """Return half copied files of an attempt."""

    @property
    def outside(self) -> tuple[str, ...]:
        """Return sentences about what leads out of the tree."""

    @property
    def signature(self) -> str:
        """Return the state of the signature: `good`, `bad`, `none` or `unknown`."""

    @property
    def provenance(self) -> str:
        """Return the digest of the manifest that the version's provenance is about; empty without one that can be read."""

    @property
    def wrong_statements(self) -> tuple[str, ...]:
        """Return sentences about statements that are missing, or about something else."""

    @property
    def versions(self) -> tuple[str, ...]:
        """Return all versions of the tree."""

    @property
    def problem(self) -> str:
        """Return why the tree could not be read back; empty if it could."""


class ReleaseWords(Struct, frozen=True, kw_only=True):
    """Words for messages about a product: its command, the machine with the tree, and who reads it."""

    command: str
    server: str
    detached: str


def read_findings(seen: PublishedVersion, words: ReleaseWords) -> Iterator[Finding]:
    """Yield a finding if no whole version was read back."""
    if seen.problem:
        yield unknown(FailureClass.RUNTIME, f"the tree could not be read back: {seen.problem}", "a tree read back", "publish again")
    if not seen.version:
        step = f"see where `current` leads; `{words.command} rollback` sets it"
        yield fail(FailureClass.APPLY, "the pointer names no version", "a pointer to a version", step)
    elif seen.version not in seen.versions:
        pointer = f"the pointer names {seen.version}, which is not in the tree"
        step = f"`{words.command} rollback` to one that is there"
        yield fail(FailureClass.APPLY, pointer, "a pointer to a version that is there", step)
    if not seen.manifest:
        step = f"see {seen.version}/manifest.json; publish again"
        yield unknown(FailureClass.RUNTIME, "the version has no manifest that can be read", "its manifest", step)
    elif release_layout.version_name(release_layout.number_of(seen.version), seen.manifest) != seen.version:
        manifest = f"{seen.version} has the manifest {seen.manifest}"
        step = "roll back, and see who wrote into the version"
        yield fail(FailureClass.COMPARISON, manifest, "the digest in the version's name", step)
    if not seen.listed or not seen.present:
        yield unknown(FailureClass.RUNTIME, "no file of the version was read back", "all files of its manifest", "publish again")


def file_findings(seen: PublishedVersion, words: ReleaseWords) -> Iterator[Finding]:
    """Yield a finding if files of the version are not those that its manifest lists."""
    files = {part.name: part for part in seen.present}
    step = f"roll back, see the disk of {words.server}, publish again"
    wrong = []
    for part in seen.listed:
        have = files.pop(part.name, None)
        if have is None:
            wrong.append(f"{part.name} is missing")
        elif have.size != part.size:
            wrong.append(f"{part.name} has {have.size} bytes instead of {part.size}")
        elif have.digest != part.digest:
            wrong.append(f"{part.name} has the digest {have.digest or 'of nothing: it was not read'} instead of {part.digest}")
    if wrong:
        yield fail(FailureClass.COMPARISON, f"in {seen.version} {some(wrong)}", "the files that its manifest lists", step)
    if extra := sorted(set(files) - {"manifest.json.sig"}):
        strays = f"{seen.version} has files that nothing lists: {some(extra)}"
        yield fail(FailureClass.COMPARISON, strays, "listed files and no others", "see who wrote into a version that is published")


def statement_findings(seen: PublishedVersion) -> Iterator[Finding]:
    """Yield a finding if the version has no provenance, or if a statement is not about this version."""
    step = "publish again: the next version gets statements of its run; see who changed these"
    if not seen.provenance:
        provenance = "the version has no provenance that can be read"
        yield fail(FailureClass.APPLY, provenance, "provenance.json about its manifest", step)
    elif seen.provenance != seen.manifest:
        provenance = f"its provenance is about the manifest {seen.provenance[:19]}"
        yield fail(FailureClass.COMPARISON, provenance, f"{seen.manifest[:19]}, the manifest of the version", step)
    if seen.wrong_statements:
        wrong = f"statements do not belong to the version: {some(seen.wrong_statements)}"
        yield fail(FailureClass.COMPARISON, wrong, "statements about this manifest and the files of this version", step)


def signature_findings(seen: PublishedVersion, *, signed: bool) -> Iterator[Finding]:
    """Yield a finding if the signature is wrong, or is missing although the version must be `signed`."""
    if seen.signature == "bad":
        step = "roll back, and see who wrote into the version, or which key signed it"
        yield fail(FailureClass.PERMISSION, "the signature does not fit the files", "one by a trusted key over these bytes", step)
    elif signed and seen.signature == "none":
        step = "see publish.sign in the spec; publish again"
        yield fail(FailureClass.PERMISSION, "the version is not signed", "a signature", step)
    elif signed and seen.signature != "good":
        step = "add the public key to publish.signers"
        yield unknown(FailureClass.INPUT, "nobody says whose signature counts", "a signature by a trusted key", step)


def tree_findings(
    seen: PublishedVersion, words: ReleaseWords, keep: int, in_use: Collection[str] = (), kept: str = "to go back to"
) -> Iterator[Finding]:
    """Yield a finding if the tree leads out of itself, has remains of a copy, or has too few or too many versions.

    `in_use` are versions that are kept beside the newest `keep` and the one before; `kept` says why versions are kept.
    """
    if seen.outside:
        step = f"make them part of the tree: {words.detached}"
        yield fail(FailureClass.DEPENDENCY, f"the tree leads out of itself: {some(seen.outside)}", "nothing that leads out", step)
    if seen.incoming:
        files = f"something is left half copied: {some(seen.incoming)}"
        yield fail(FailureClass.RUNTIME, files, "nothing in incoming", "publish again: it removes what a stopped attempt left")
    if lacking := sorted({seen.before, *in_use} - {"", *seen.versions}):
        step = "see who removed it; publish keeps these"
        yield fail(FailureClass.RUNTIME, f"{some(lacking)} is not in the tree any more", f"the version before, {kept}", step)
    if many := _too_many(seen, keep, in_use):
        versions = f"{len(seen.versions)} versions are there, {some(many)} beyond what is kept"
        step = "see why they could not be removed, then publish again"
        yield fail(FailureClass.RUNTIME, versions, f"the newest {keep}, and the one {kept}", step)


def some(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of the others."""
    return plain_text.some(names, 3)


def _too_many(seen: PublishedVersion, keep: int, in_use: Collection[str]) -> tuple[str, ...]:
    """Return versions that retention should have removed: not among the newest to keep, not current or before it, and not in use.

    The newest such version is tolerated, because it may be the one to roll back to.
    """
    ordered = sorted(seen.versions, key=release_layout.number_of)
    stay = {*ordered[-keep:], seen.version, seen.before, *in_use}
    spare = [name for name in ordered if name not in stay]
    return tuple(spare[:-1])
