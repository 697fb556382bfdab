"""Gate of image_boot: every test machine booted this image over the network, came up whole, and passed its tests."""

from collections import Counter
from collections.abc import Iterator

from steps.contract import plain_text
from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes
from steps.nodeimage.contract import console
from steps.nodeimage.contract.boot_tests import TESTS_ARGUMENT, BootEvent, MachineBoot, NodeReport
from steps.nodeimage.contract.console import Life, Sign
from steps.nodeimage.contract.image_tests import ImageTestOutcome
from steps.stages.image_boot.contract import Booted, BootsExpectation
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown

MOST_TOLD = 3
FETCHED = ("script", "kernel", "initrd", "root", "tests", "report")
"""Files and messages that a machine exchanges with the server in a boot."""
LEFT_OUT = f"a unit that needs what no test machine has is left out by ConditionKernelCommandLine=!{TESTS_ARGUMENT}=yes"


def boots(seen: Booted, want: BootsExpectation) -> Verdict:
    """Check that as many machines as asked for booted this image, are healthy, and passed all tests."""
    if finding := _all(seen, want):
        return finding.verdict("image_boot/boots")
    rows = [_row(boot, seen, want) for boot in seen.boots]
    return of_nodes("image_boot/boots", rows, what=f"booted by {want.firmware} and passed {len(want.tests)} tests")


def _all(seen: Booted, want: BootsExpectation) -> Finding | None:
    """Return a problem that concerns the whole observation, so that no machine can be judged; None if there is none."""
    if seen.problem:
        step = "mend that on the machine that boots the images, and run this again"
        return unknown(FailureClass.DEPENDENCY, f"no machine could be started: {seen.problem}", f"{want.machines} machines", step)
    if seen.key != want.key:
        step = "start the whole build again: this is of another recipe"
        return fail(FailureClass.COMPARISON, f"image {seen.key[:12] or 'unknown'} was booted", f"image {want.key[:12]}", step)
    names = Counter(boot.name for boot in seen.boots if boot.name)
    if len(names) < max(1, want.machines) or max(names.values()) > 1:
        booted = f"{len(names)} machines were booted{': ' if names else ''}{', '.join(names)}"
        return unknown(FailureClass.RUNTIME, booted, f"{max(1, want.machines)} of different names", "boot the image again")
    if not seen.root_digest or not seen.root_size or not seen.kernel:
        step = "assemble the image again: its manifest does not list them"
        expected = "the root's digest and size, the kernel's release"
        return unknown(FailureClass.INPUT, "nothing tells which root and kernel were served", expected, step)
    return None


def _row(boot: MachineBoot, seen: Booted, want: BootsExpectation) -> NodeVerdict:
    good = f"up after {boot.seconds:.0f} s, {len(want.tests)} tests passed"
    return node_verdict(boot.name, next(_findings(boot, seen, want), None), good)


def _findings(boot: MachineBoot, seen: Booted, want: BootsExpectation) -> Iterator[Finding]:
    """Yield the problems of one machine, causes before their consequences."""
    if boot.firmware is not want.firmware:
        yield fail(FailureClass.COMPARISON, f"started by {boot.firmware}", want.firmware, "boot it again with the right firmware")
    if boot.report is None or boot.ended != "report":
        yield cut_short(boot, seen, want.seconds)
    else:
        yield from _fetched(boot, seen)
        yield from _identity(boot, boot.report, seen, want)
        yield from _health(boot, boot.report, want)
        yield from _tests(boot.report, want)


def _fetched(boot: MachineBoot, seen: Booted) -> Iterator[Finding]:
    """Yield a problem for each file that the machine did not fetch from this server: a disk could have served it instead."""
    whole = {event.what for event in boot.events if event.sent == event.size > 0}
    if missing := [what for what in FETCHED if what not in whole]:
        fetched = f"it reported, and did not fetch {plain_text.some(missing, MOST_TOLD)} whole"
        step = f"read the console of {boot.name}: what it booted came from elsewhere"
        yield fail(FailureClass.COMPARISON, fetched, "all from the server", step)
    roots = [event.size for event in boot.events if event.what == "root"]
    if roots and roots[-1] != seen.root_size:
        served = f"a root of {roots[-1]} bytes was served"
        yield fail(FailureClass.INPUT, served, f"{seen.root_size} bytes", "compare the file with its manifest")


def _identity(boot: MachineBoot, report: NodeReport, seen: Booted, want: BootsExpectation) -> Iterator[Finding]:
    """Yield a problem unless the report is from this machine, with this image and kernel."""
    if report.mac != boot.mac:
        step = "see whose boot script it was given: nodes are told apart by this address"
        yield fail(FailureClass.COMPARISON, f"a report from {report.mac or 'no address'}", f"from {boot.mac}", step)
    if report.firmware != want.firmware:
        step = "see how the machine was started: its firmware shows as /sys/firmware/efi there"
        yield fail(FailureClass.COMPARISON, f"it says it was started by {report.firmware or 'nothing'}", want.firmware, step)
    if report.image != seen.root_digest:
        step = "compare the file that the server gave with its manifest: the bytes on the node are others"
        running, served = _short(report.image), _short(seen.root_digest)
        yield fail(FailureClass.COMPARISON, f"it runs image {running}", f"image {served}", step)
    if report.kernel != seen.kernel:
        running = f"kernel {report.kernel or 'unknown'} runs"
        yield fail(FailureClass.COMPARISON, running, f"kernel {seen.kernel}", "assemble it again")
    if not report.modules:
        step = "make the layer that has the kernel again: kernel, initrd and root must come from one package"
        yield fail(FailureClass.DEPENDENCY, f"its root has no modules of its kernel {report.kernel}", "its modules", step)


def _health(boot: MachineBoot, report: NodeReport, want: BootsExpectation) -> Iterator[Finding]:
    """Yield a problem unless the root is writable and has room, the clock is right, and all units run."""
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
        yield fail(FailureClass.HEALTH, f"failed units: {plain_text.some(report.failed_units, MOST_TOLD)}", "none", step)


def _tests(report: NodeReport, want: BootsExpectation) -> Iterator[Finding]:
    """Yield a problem unless each wanted test passed exactly once and no other test failed."""
    cases = {case.name: case for case in want.tests}
    counted = Counter(result.name for result in report.results)
    bad = [result for result in report.results if result.outcome is not ImageTestOutcome.PASS]
    for result in bad[:1]:
        case = cases.get(result.name)
        more = f" and {len(bad) - 1} more tests" if len(bad) > 1 else ""
        outcome = f"test {result.name}: {result.outcome}{f' ({result.output})' if result.output else ''}{more}"
        step = (case.next_step if case else "") or "run the test's script on the node"
        yield fail(FailureClass.HEALTH, outcome, f"pass{f': {case.incident}' if case and case.incident else ''}", step)
    if missing := [name for name in cases if counted[name] != 1]:
        step = "boot it again, and see on its console why it left them out"
        absent = f"{len(missing)} of {len(cases)} tests are not in its report once: {plain_text.some(missing, MOST_TOLD)}"
        yield unknown(FailureClass.RUNTIME, absent, "each of them once", step)


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12] or "unknown"


EXPECTED = "a report from it"


def cut_short(boot: MachineBoot, seen: Booted, seconds: float) -> Finding:
    """Return the finding with the most specific known cause why a machine sent no report within `seconds`."""
    root = next((event for event in reversed(boot.events) if event.what == "root"), None)
    sign = console.SIGNS.get(boot.stopped_at)
    return (
        _broken(boot)
        or _refused(boot)
        or _truncated(root, seen)
        or _other_kernel(boot, seen)
        or (_signed(sign, boot) if sign and not sign.general else None)
        or _broken_off(root)
        or (_signed(sign, boot) if sign else None)
        or _flooded(boot)
        or _silent(boot, seconds)
    )


def _broken(boot: MachineBoot) -> Finding | None:
    if not boot.broken:
        return None
    step = "see why QEMU does not run here: in the kernel's log, where it ran out of memory"
    return unknown(FailureClass.DEPENDENCY, f"its machine ended: {boot.broken}", EXPECTED, step)


def _refused(boot: MachineBoot) -> Finding | None:
    if not boot.problem:
        return None
    step = "build the image again: the program that reports is not of this version"
    return fail(FailureClass.RUNTIME, f"its report was refused: {boot.problem}", EXPECTED, step)


def _truncated(root: BootEvent | None, seen: Booted) -> Finding | None:
    if root is None or root.size == seen.root_size:
        return None
    what = "truncated" if root.size < seen.root_size else "another one"
    sizes = f"its squashfs is {what}: the server has {_mib(root.size)}, the manifest says {_mib(seen.root_size)}"
    step = "copy or assemble the image again, and see whether the disk that serves it is full"
    return fail(FailureClass.INPUT, sizes, "the whole file", step)


def _other_kernel(boot: MachineBoot, seen: Booted) -> Finding | None:
    if not boot.kernel or not seen.kernel or boot.kernel == seen.kernel:
        return None
    kernels = f"kernel {boot.kernel} was started, initrd and root have the modules of {seen.kernel}"
    step = "take kernel and initrd of one version: the boot script must name both by version"
    return fail(FailureClass.COMPARISON, kernels, f"kernel {seen.kernel}", step)


def _broken_off(root: BootEvent | None) -> Finding | None:
    if root is None or root.sent >= root.size:
        return None
    received = f"the HTTP server was gone in the middle of its root: {_mib(root.sent)} of {_mib(root.size)} came"
    step = "see whether the server or the network between went down, and boot it again"
    return fail(FailureClass.DEPENDENCY, received, "the whole root", step)


def _signed(sign: Sign, boot: MachineBoot) -> Finding:
    quoted = f" (console: {boot.stopped_line})" if boot.stopped_line else ""
    return fail(sign.failure_class, f"{sign.seen}{quoted}", EXPECTED, sign.next_step)


def _flooded(boot: MachineBoot) -> Finding | None:
    if boot.ended != "flood":
        return None
    end = f"it was stopped after {boot.seconds:.0f} s, since its console had no end; {_far(boot)}"
    step = f"see what repeats itself at the end of the console of {boot.name}, and end that"
    return fail(FailureClass.RUNTIME, end, EXPECTED, step)


def _far(boot: MachineBoot) -> str:
    life: Life | None = console.LIVES.get(boot.stopped_at)
    return life.seen if life else "its console says nothing that is known"


def _silent(boot: MachineBoot, seconds: float) -> Finding:
    """Return a finding that says how far the boot came, for a machine that sent no report for an unknown cause."""
    # nobody knows yet what a console's last line means that no sign knows, so it is quoted
    far = _far(boot) + (f"; the last line of its console: {boot.console[-1]}" if boot.console else "")
    step = f"read the console of {boot.name} from there on"
    if boot.ended == "exit":
        return fail(FailureClass.RUNTIME, f"it stopped by itself after {boot.seconds:.0f} s; {far}", EXPECTED, step)
    step = f"{step}; give it more time if it was merely slow"
    return unknown(FailureClass.RUNTIME, f"no report within {seconds:.0f} s; {far}", EXPECTED, step)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
