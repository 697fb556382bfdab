"""Gate of image_boot: every test machine booted that image over the network, came up whole, and passed its tests."""

from collections import Counter
from collections.abc import Iterator

from steps.contract.image.booting import TESTS_ARGUMENT, Boot, NodeReport
from steps.contract.image.testing import Outcome
from steps.contract.stages.image_boot import Booted, Wanted
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes
from steps.gates.finding import Finding, fail, unknown
from steps.gates.image_boot_console import cut_short

MOST_TOLD = 3
FETCHED = ("script", "kernel", "initrd", "root", "tests", "report")
"""What goes between a machine and the server in a boot."""
LEFT_OUT = f"a unit that needs what no test machine has is left out by ConditionKernelCommandLine=!{TESTS_ARGUMENT}=yes"


def boots(seen: Booted, want: Wanted) -> Verdict:
    """As many machines as asked for, each with that image, an overlay as root, room, a right clock, no failed unit, all tests
    passed."""
    if found := _all(seen, want):
        return found.verdict("image_boot/boots")
    rows = [_row(boot, seen, want) for boot in seen.boots]
    return of_nodes("image_boot/boots", rows, what=f"booted by {want.firmware} and passed {len(want.tests)} tests")


def _all(seen: Booted, want: Wanted) -> Finding | None:
    """What keeps any machine from being judged."""
    if seen.problem:
        step = "mend that on the machine that boots the images, and run this again"
        return unknown(FailureClass.DEPENDENCY, f"no machine could be started: {seen.problem}", f"{want.machines} machines", step)
    if seen.key != want.key:
        step = "start the whole build again: this is of another recipe"
        return fail(FailureClass.COMPARISON, f"image {seen.key[:12] or 'unknown'} was booted", f"image {want.key[:12]}", step)
    names = Counter(boot.name for boot in seen.boots if boot.name)
    if len(names) < max(1, want.machines) or max(names.values()) > 1:
        said = f"{len(names)} machines were booted{': ' if names else ''}{', '.join(names)}"
        return unknown(FailureClass.RUNTIME, said, f"{max(1, want.machines)} of different names", "boot the image again")
    if not seen.root_digest or not seen.root_size or not seen.kernel:
        step = "assemble the image again: its manifest does not list them"
        said = "nothing tells which root and kernel were served"
        return unknown(FailureClass.INPUT, said, "the root's digest and size, the kernel's release", step)
    return None


def _row(boot: Boot, seen: Booted, want: Wanted) -> NodeVerdict:
    found = next(_findings(boot, seen, want), None)
    said = f"up after {boot.seconds:.0f} s, {len(want.tests)} tests passed"
    return found.of_node(boot.name) if found else NodeVerdict(node=boot.name, status=Status.PASS, seen=said)


def _findings(boot: Boot, seen: Booted, want: Wanted) -> Iterator[Finding]:
    """What is wrong with one machine, the cause before what follows from it."""
    if boot.firmware is not want.firmware:
        yield fail(FailureClass.COMPARISON, f"started by {boot.firmware}", want.firmware, "boot it again with the right firmware")
    if boot.report is None or boot.ended != "report":
        yield cut_short(boot, seen, want.seconds)
    else:
        yield from _fetched(boot, seen)
        yield from _identity(boot, boot.report, seen, want)
        yield from _health(boot, boot.report, want)
        yield from _tests(boot.report, want)


def _fetched(boot: Boot, seen: Booted) -> Iterator[Finding]:
    """All that it runs came over the network, from this server: a machine that has a disk could have booted that."""
    whole = {event.what for event in boot.events if event.sent == event.size > 0}
    missing = [what for what in FETCHED if what not in whole]
    step = f"read the console of {boot.name}: what it booted came from elsewhere"
    if missing:
        yield fail(FailureClass.COMPARISON, f"it reported, and did not fetch {_some(missing)} whole", "all from the server", step)
    roots = [event.size for event in boot.events if event.what == "root"]
    if roots and roots[-1] != seen.root_size:
        said = f"a root of {roots[-1]} bytes was served"
        yield fail(FailureClass.INPUT, said, f"{seen.root_size} bytes", "compare the file with its manifest")


def _identity(boot: Boot, report: NodeReport, seen: Booted, want: Wanted) -> Iterator[Finding]:
    """It is that machine, with that image and kernel."""
    if report.mac != boot.mac:
        step = "see whose boot script it was given: nodes are told apart by this address"
        yield fail(FailureClass.COMPARISON, f"a report from {report.mac or 'no address'}", f"from {boot.mac}", step)
    if report.firmware != want.firmware:
        step = "see how the machine was started: its firmware shows as /sys/firmware/efi there"
        yield fail(FailureClass.COMPARISON, f"it says it was started by {report.firmware or 'nothing'}", want.firmware, step)
    if report.image != seen.root_digest:
        step = "compare the file that the server gave with its manifest: the bytes on the node are others"
        said = f"it runs image {_short(report.image)}"
        yield fail(FailureClass.COMPARISON, said, f"image {_short(seen.root_digest)}", step)
    if report.kernel != seen.kernel:
        yield fail(
            FailureClass.COMPARISON, f"kernel {report.kernel or 'unknown'} runs", f"kernel {seen.kernel}", "assemble it again"
        )
    if not report.modules:
        step = "make the layer that has the kernel again: kernel, initrd and root must come from one package"
        yield fail(FailureClass.DEPENDENCY, f"its root has no modules of its kernel {report.kernel}", "its modules", step)


def _health(boot: Boot, report: NodeReport, want: Wanted) -> Iterator[Finding]:
    """Its root can be written and has room, its clock is right, its units run."""
    if report.root != "overlay":
        step = "see live-boot's arguments and its hooks in the initrd: something mounts the root another way"
        yield fail(FailureClass.RUNTIME, f"its root is {report.root or 'unknown'}", "an overlay over the image", step)
    if not report.address or report.uptime <= 0:
        step = "see whether the program that reports is that of this version"
        yield fail(FailureClass.RUNTIME, "it does not say its address, or since when it is up", "both", step)
    if report.free_mib < want.free_mib:
        step = "give it more memory (the overlay has half of it, or what overlay-size says), or see what fills it"
        yield fail(FailureClass.RUNTIME, f"its root has room for {report.free_mib} MiB", f"{want.free_mib} MiB", step)
    off = report.clock - boot.clock
    if not boot.clock or not abs(off) <= want.clock_seconds:
        step = "set the hardware clock, or let the image ask a time server before its services start: certificates depend on it"
        yield fail(FailureClass.RUNTIME, f"its clock is off by {off:+.0f} s", f"at most {want.clock_seconds:.0f} s", step)
    if report.failed_units:
        step = f"`systemctl status {report.failed_units[0]}` there, and its part of the console; {LEFT_OUT}"
        yield fail(FailureClass.HEALTH, f"failed units: {_some(report.failed_units)}", "none", step)


def _tests(report: NodeReport, want: Wanted) -> Iterator[Finding]:
    """Each wanted test passed once, and nothing else failed."""
    cases = {case.name: case for case in want.tests}
    counted = Counter(one.name for one in report.results)
    bad = [one for one in report.results if one.outcome is not Outcome.PASS]
    for one in bad[:1]:
        case = cases.get(one.name)
        said = f"test {one.name}: {one.outcome}{f' ({one.output})' if one.output else ''}{_more(len(bad) - 1, 'tests')}"
        step = (case.next_step if case else "") or "run the test's script on the node"
        yield fail(FailureClass.HEALTH, said, f"pass{f': {case.incident}' if case and case.incident else ''}", step)
    missing = [name for name in cases if counted[name] != 1]
    if missing:
        step = "boot it again, and see on its console why it left them out"
        said = f"{len(missing)} of {len(cases)} tests are not in its report once: {_some(missing)}"
        yield unknown(FailureClass.RUNTIME, said, "each of them once", step)


def _some(names: tuple[str, ...] | list[str]) -> str:
    return f"{', '.join(names[:MOST_TOLD])}{_more(len(names) - MOST_TOLD, '')}"


def _more(count: int, what: str) -> str:
    return f" and {count} more {what}".rstrip() if count > 0 else ""


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12] or "unknown"
