"""Gate of image_publish: nodes read exactly the version that was tested, and nothing in the published folder leads out of it."""

from collections.abc import Iterator

from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.image_publish.contract import Published, PublishedExpectation
from steps.stages.shared import gate_releases
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.gate_releases import ReleaseWords, some

GATE = "image_publish/tree"
_WORDS = ReleaseWords(command="bringup image", server="the boot server", detached="a boot server must work without the factory")
_KEPT = "to go back to, and those that nodes run"


def tree(seen: Published, want: PublishedExpectation) -> Verdict:
    """Check that the pointer names a complete version, every group boots it, and the published folder needs nothing outside."""
    if first := next(_findings(seen, want), None):
        return first.verdict(GATE)
    size = sum(part.size for part in seen.found)
    how = "is current already: nothing was written" if seen.unchanged else "is current"
    was = f", it was {seen.before}" if seen.before and not seen.unchanged else ""
    signed = ", signed" if seen.signature == "good" else ""
    signed += f", verified by iPXE until {seen.signed_until}" if seen.signed_until else ""
    groups = ", ".join(want.groups)
    return passed(GATE, f"{seen.version} {how}{was}: {len(seen.found)} files, {size / 1e6:.1f} MB{signed}; groups {groups} boot it")


def _findings(seen: Published, want: PublishedExpectation) -> Iterator[Finding]:
    yield from gate_releases.read_findings(seen, _WORDS)
    yield from gate_releases.file_findings(seen, _WORDS)
    yield from _groups(seen, want)
    yield from gate_releases.statement_findings(seen)
    yield from gate_releases.signature_findings(seen, signed=want.signed)
    yield from gate_releases.tree_findings(seen, _WORDS, want.keep, seen.in_use, _KEPT)


def _groups(seen: Published, want: PublishedExpectation) -> Iterator[Finding]:
    if not want.groups:
        yield unknown(FailureClass.INPUT, "no group was asked for", "at least one group of nodes", "see publish.groups in the spec")
    step = "publish again; see that nothing else writes into ROOT/boot"
    if missing := sorted(set(want.groups) - set(seen.scripts)):
        yield fail(FailureClass.APPLY, f"{seen.version} has no boot script for {some(missing)}", "a script for each group", step)
    for group in want.groups:
        if (named := seen.scripts[group]) != seen.version:
            script = f"the script of group {group} names {named or 'several versions, or none'}"
            next_step = "roll back; the script was changed after it was published"
            yield fail(FailureClass.COMPARISON, script, f"{seen.version} in all its paths", next_step)
    if seen.lost:
        machines = f"{len(seen.lost)} machines are not led to {seen.version}: {some(seen.lost)}"
        yield fail(FailureClass.APPLY, machines, "boot/MACHINE.ipxe of each machine that a group names, leading to its group", step)
    if lost := sorted(set(want.groups) - set(seen.entries)):
        entries = f"what nodes of {some(lost)} load does not lead to the pointer"
        yield fail(FailureClass.APPLY, entries, "boot/GROUP.ipxe of each group chaining to the pointer", step)
