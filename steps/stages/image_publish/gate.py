"""Gate of image_publish: nodes read exactly the version that was tested, and nothing in the published folder leads out of it."""

from collections.abc import Iterator, Sequence

from steps.contract import plain_text, release_layout
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.image_publish.contract import Published, PublishedExpectation
from steps.stages.shared.finding import Finding, fail, unknown

GATE = "image_publish/tree"


def tree(seen: Published, want: PublishedExpectation) -> Verdict:
    """Check that the pointer names a complete version, every group boots it, and the published folder needs nothing outside."""
    if first := next(_findings(seen, want), None):
        return first.verdict(GATE)
    size = sum(part.size for part in seen.found)
    how = "is current already: nothing was written" if seen.unchanged else "is current"
    was = f", it was {seen.before}" if seen.before and not seen.unchanged else ""
    signed = ", signed" if seen.signature == "good" else ""
    groups = ", ".join(want.groups)
    return passed(GATE, f"{seen.version} {how}{was}: {len(seen.found)} files, {size / 1e6:.1f} MB{signed}; groups {groups} boot it")


def _findings(seen: Published, want: PublishedExpectation) -> Iterator[Finding]:
    yield from _read(seen)
    yield from _files(seen)
    yield from _groups(seen, want)
    yield from _signed(seen, want)
    yield from _tree(seen, want)


def _read(seen: Published) -> Iterator[Finding]:
    if seen.problem:
        yield unknown(FailureClass.RUNTIME, f"the tree could not be read back: {seen.problem}", "a tree read back", "publish again")
    if not seen.version:
        step = "see where `current` leads; `bringup image rollback` sets it"
        yield fail(FailureClass.APPLY, "the pointer names no version", "a pointer to a version", step)
    elif seen.version not in seen.versions:
        pointer = f"the pointer names {seen.version}, which is not in the tree"
        step = "`bringup image rollback` to one that is there"
        yield fail(FailureClass.APPLY, pointer, "a pointer to a version that is there", step)
    if not seen.manifest:
        step = f"see {seen.version}/manifest.json; publish again"
        yield unknown(FailureClass.RUNTIME, "the version has no manifest that can be read", "its manifest", step)
    elif release_layout.version_name(release_layout.number_of(seen.version), seen.manifest) != seen.version:
        manifest = f"{seen.version} has the manifest {seen.manifest}"
        step = "roll back, and see who wrote into the version"
        yield fail(FailureClass.COMPARISON, manifest, "the digest in the version's name", step)
    if not seen.listed or not seen.found:
        yield unknown(FailureClass.RUNTIME, "no file of the version was read back", "all files of its manifest", "publish again")


def _files(seen: Published) -> Iterator[Finding]:
    present = {part.name: part for part in seen.found}
    step = "roll back, see the disk of the boot server, publish again"
    wrong = []
    for part in seen.listed:
        have = present.pop(part.name, None)
        if have is None:
            wrong.append(f"{part.name} is missing")
        elif have.size != part.size:
            wrong.append(f"{part.name} has {have.size} bytes instead of {part.size}")
        elif have.digest != part.digest:
            wrong.append(f"{part.name} has the digest {have.digest or 'of nothing: it was not read'} instead of {part.digest}")
    if wrong:
        yield fail(FailureClass.COMPARISON, f"in {seen.version} {_some(wrong)}", "the files that its manifest lists", step)
    if extra := sorted(set(present) - {"manifest.json.sig"}):
        files = f"{seen.version} has files that nothing lists: {_some(extra)}"
        yield fail(FailureClass.COMPARISON, files, "listed files and no others", "see who wrote into a version that is published")


def _groups(seen: Published, want: PublishedExpectation) -> Iterator[Finding]:
    if not want.groups:
        yield unknown(FailureClass.INPUT, "no group was asked for", "at least one group of nodes", "see publish.groups in the spec")
    step = "publish again; see that nothing else writes into ROOT/boot"
    if missing := sorted(set(want.groups) - set(seen.scripts)):
        yield fail(FailureClass.APPLY, f"{seen.version} has no boot script for {_some(missing)}", "a script for each group", step)
    for group in want.groups:
        if (named := seen.scripts[group]) != seen.version:
            script = f"the script of group {group} names {named or 'several versions, or none'}"
            next_step = "roll back; the script was changed after it was published"
            yield fail(FailureClass.COMPARISON, script, f"{seen.version} in all its paths", next_step)
    if seen.lost:
        machines = f"{len(seen.lost)} machines are not led to {seen.version}: {_some(seen.lost)}"
        yield fail(FailureClass.APPLY, machines, "boot/MACHINE.ipxe of each machine that a group names, leading to its group", step)
    if lost := sorted(set(want.groups) - set(seen.entries)):
        entries = f"what nodes of {_some(lost)} load does not lead to the pointer"
        yield fail(FailureClass.APPLY, entries, "boot/GROUP.ipxe of each group chaining to the pointer", step)


def _signed(seen: Published, want: PublishedExpectation) -> Iterator[Finding]:
    if seen.signature == "bad":
        step = "roll back, and see who wrote into the version, or which key signed it"
        yield fail(FailureClass.PERMISSION, "the signature does not fit the files", "one by a trusted key over these bytes", step)
    elif want.signed and seen.signature == "none":
        step = "see publish.sign in the spec; publish again"
        yield fail(FailureClass.PERMISSION, "the version is not signed", "a signature", step)
    elif want.signed and seen.signature != "good":
        step = "add the public key to publish.signers"
        yield unknown(FailureClass.INPUT, "nobody says whose signature counts", "a signature by a trusted key", step)


def _tree(seen: Published, want: PublishedExpectation) -> Iterator[Finding]:
    if seen.outside:
        step = "make them part of the tree: a boot server must work without the factory"
        yield fail(FailureClass.DEPENDENCY, f"the tree leads out of itself: {_some(seen.outside)}", "nothing that leads out", step)
    if seen.incoming:
        files = f"something is left half copied: {_some(seen.incoming)}"
        yield fail(FailureClass.RUNTIME, files, "nothing in incoming", "publish again: it removes what a stopped attempt left")
    if lacking := sorted({seen.before, *seen.in_use} - {"", *seen.versions}):
        expected = "the version before, to go back to, and those that nodes run"
        step = "see who removed it; publish keeps these"
        yield fail(FailureClass.RUNTIME, f"{_some(lacking)} is not in the tree any more", expected, step)
    if many := _too_many(seen, want):
        versions = f"{len(seen.versions)} versions are there, {_some(many)} beyond what is kept"
        step = "see why they could not be removed, then publish again"
        yield fail(FailureClass.RUNTIME, versions, f"the newest {want.keep}, those to roll back to, and those that nodes run", step)


def _too_many(seen: Published, want: PublishedExpectation) -> tuple[str, ...]:
    """Return versions that retention should have removed: not among the newest to keep, not current or before it, and on no node.

    The newest such version is tolerated, because it may be the one to roll back to.
    """
    ordered = sorted(seen.versions, key=release_layout.number_of)
    stay = {*ordered[-want.keep :], seen.version, seen.before, *seen.in_use}
    spare = [name for name in ordered if name not in stay]
    return tuple(spare[:-1])


def _some(names: Sequence[str]) -> str:
    return plain_text.some(names, 3)
