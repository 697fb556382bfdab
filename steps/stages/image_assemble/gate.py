"""Gate of image_assemble: an image's files match its manifest, keep the size budget, and belong to one kernel version."""

from collections.abc import Iterator
from typing import Final

from steps.contract.verdict import FailureClass, Verdict, passed
from steps.nodeimage.contract.image_manifest import PARTS, ImageFile
from steps.stages.image_assemble.contract import Assembled, OutputsExpectation
from steps.stages.shared.finding import Finding, fail, unknown

GATE: Final = "image_assemble/outputs"
_MIB: Final = 1 << 20
_SHOWN: Final = 19
"""Characters of a digest that are shown: `sha256:` and twelve digits tell two files apart."""
_AGAIN: Final = "remove the image from the store and build it again"


def outputs(seen: Assembled, want: OutputsExpectation) -> Verdict:
    """Check that every file is as its manifest lists it, and that kernel, root and initrd are of one version."""
    if finding := next(_findings(seen, want), None):
        return finding.verdict(GATE, final=True)
    sizes = ", ".join(f"{part.name} {part.size / _MIB:.1f} MiB" for part in seen.found)
    how = "found as built before" if seen.cached else "packed"
    alone = f"; no driver of racked network cards ({', '.join(seen.unracked)}) in the initrd: for virtual machines alone"
    return passed(GATE, f"{how}: {sizes}; kernel {seen.kernel}{alone if seen.unracked else ''}")


def _findings(seen: Assembled, want: OutputsExpectation) -> Iterator[Finding]:
    if seen.problem:
        yield unknown(FailureClass.RUNTIME, seen.problem, "a packed image that can be read", _AGAIN)
    if seen.key != want.key:
        image = f"the image of {seen.key[:12] or 'no key'} was looked at"
        yield fail(FailureClass.COMPARISON, image, f"that of {want.key[:12]}", "build with the recipe that was planned")
    if not seen.manifest:
        yield unknown(FailureClass.RUNTIME, "no manifest was read", "manifest.json beside the files", _AGAIN)
    present, listed = {part.name: part for part in seen.found}, {part.name: part for part in seen.listed}
    for name in PARTS:
        yield from _part(name, present.get(name), listed.get(name))
    for name in sorted({*present, *listed} - {*PARTS}):
        yield fail(FailureClass.COMPARISON, f"{name} is among the files", f"only {', '.join(PARTS)}", _AGAIN)
    yield from _kernel(seen)
    root = present["root.squashfs"]
    if want.budget_mib and root.size > want.budget_mib * _MIB:
        step = "`bringup image diff` to the version before shows what grew; raise budget_mib where it must"
        yield fail(FailureClass.INPUT, f"root.squashfs has {root.size / _MIB:.1f} MiB", f"at most {want.budget_mib} MiB", step)


def _part(name: str, present: ImageFile | None, listed: ImageFile | None) -> Iterator[Finding]:
    if present is None:
        yield fail(FailureClass.RUNTIME, f"{name} is missing", f"{', '.join(PARTS)} in the store", _AGAIN)
    elif not present.size:
        step = "see whether the store is full, then build again"
        yield fail(FailureClass.RUNTIME, f"{name} is empty", "a file with content", step)
    elif listed is None:
        yield fail(FailureClass.COMPARISON, f"{name} is not in the manifest", "a manifest that lists all files", _AGAIN)
    elif (present.digest, present.size) != (listed.digest, listed.size):
        actual, expected = (f"{file.digest[:_SHOWN]} and {file.size} bytes" for file in (present, listed))
        yield fail(FailureClass.COMPARISON, f"{name} has {actual}", f"{expected} as its manifest says", _AGAIN)


def _kernel(seen: Assembled) -> Iterator[Finding]:
    if not seen.kernel:
        step = "see what `file vmlinuz` says"
        yield unknown(FailureClass.RUNTIME, "vmlinuz does not say its version", "a kernel that does", step)
    for where, version in (("root", seen.root_modules), ("initrd", seen.initrd_modules)):
        if version != seen.kernel:
            modules = f"the modules in the {where} are {f'those of {version}' if version else 'none'}"
            step = "let the recipe install one kernel, with its modules, and name it in `kernel`"
            yield fail(FailureClass.INPUT, f"vmlinuz is {seen.kernel}, {modules}", f"modules of {seen.kernel}", step)
