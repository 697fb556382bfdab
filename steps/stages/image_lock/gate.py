"""Gate of image_lock: every locked package is in the archive, byte for byte; a build takes packages from nowhere else."""

from steps.contract import plain_text
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.image_lock.contract import Archive, ArchiveExpectation
from steps.stages.shared.finding import Finding, fail, unknown

GATE = "image_lock/archive"
MOST_TOLD = 3
_RELOCK = "name a lock of your own in the spec (lock: FILE), make it (bringup image lock SPEC)"
_EARLIER = "copy an earlier archive into the store"


def archive(seen: Archive, want: ArchiveExpectation) -> Verdict:
    """Check that all packages of this recipe are in the archive."""
    if finding := _finding(seen, want):
        return finding.verdict(GATE)
    fetched = f", {seen.fetched} of them brought in now" if seen.fetched else ""
    return passed(GATE, f"the archive has all {seen.packages} locked packages, {seen.bytes / 1e6:.0f} MB{fetched}")


def _finding(seen: Archive, want: ArchiveExpectation) -> Finding | None:
    whole = f"all {want.packages} packages of recipe {want.recipe}"
    if seen.recipe != want.recipe:
        read = f"recipe {seen.recipe}" if seen.recipe else "no recipe"
        step = "render again, and submit all files together"
        return unknown(FailureClass.INPUT, f"the archive was filled for {read}", whole, step)
    if seen.packages != want.packages or not want.packages:
        return fail(
            FailureClass.INPUT,
            f"the recipe that was read locks {seen.packages} packages",
            whole if want.packages else "a recipe that locks packages",
            "make the lock (bringup image lock), then render again",
        )
    if seen.wrong:
        return fail(
            FailureClass.RUNTIME,
            _list(seen.wrong, "with other bytes than the locked ones", seen.problems),
            whole,
            "look at the disk of the store: files in the archive never change; run again where a mirror has the package",
        )
    if seen.missing:
        dropped = f"where the mirror dropped the version, {want.relock or _RELOCK}, and build again, or {_EARLIER}"
        later = "run again when the mirror answers"
        steps = (dropped, later) if seen.away < len(seen.missing) else (later, dropped)
        return fail(FailureClass.DEPENDENCY, _list(seen.missing, "missing", seen.problems), whole, "; else ".join(steps))
    if seen.kept + seen.fetched != want.packages or not seen.bytes:  # without missing ones, all must have been counted
        counted = f"{seen.kept} packages kept and {seen.fetched} brought in, {seen.bytes} bytes"
        return unknown(FailureClass.RUNTIME, counted, whole, "run again; if it stays so, report it as a bug")
    return None


def _list(names: tuple[str, ...], what: str, problems: tuple[str, ...]) -> str:
    why = f" ({problems[0]})" if problems else ""
    return f"{len(names)} {what}: {plain_text.some(names, MOST_TOLD)}{why}"
