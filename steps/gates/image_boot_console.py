"""Why a machine that never reported did not: from what the server saw it fetch, and what its console said."""

from steps.contract.image import console
from steps.contract.image.booting import Boot, Event
from steps.contract.image.console_signs import Life, Sign
from steps.contract.stages.image_boot import Booted
from steps.contract.verdict import FailureClass
from steps.gates.finding import Finding, fail, unknown

MIB = 1 << 20
EXPECTED = "a report from it"


def cut_short(boot: Boot, seen: Booted, seconds: float) -> Finding:
    """The closest cause that can be told."""
    root = next((event for event in reversed(boot.events) if event.what == "root"), None)
    sign = console.SIGNS.get(boot.stopped_at)
    return (
        _broken(boot)
        or _refused(boot)
        or _truncated(root, seen)
        or _other_kernel(boot, seen)
        or (_signed(sign) if sign and not sign.general else None)
        or _broken_off(root)
        or (_signed(sign) if sign else None)
        or _flooded(boot)
        or _silent(boot, seconds)
    )


def _broken(boot: Boot) -> Finding | None:
    if not boot.broken:
        return None
    step = "see why QEMU does not run here: in the kernel's log, where it ran out of memory"
    return unknown(FailureClass.DEPENDENCY, f"its machine ended: {boot.broken}", EXPECTED, step)


def _refused(boot: Boot) -> Finding | None:
    if not boot.problem:
        return None
    step = "build the image again: the program that reports is not of this version"
    return fail(FailureClass.RUNTIME, f"its report was refused: {boot.problem}", EXPECTED, step)


def _truncated(root: Event | None, seen: Booted) -> Finding | None:
    if root is None or root.size == seen.root_size:
        return None
    what = "truncated" if root.size < seen.root_size else "another one"
    said = f"its squashfs is {what}: the server has {_mib(root.size)}, the manifest says {_mib(seen.root_size)}"
    step = "copy or assemble the image again, and see whether the disk that serves it is full"
    return fail(FailureClass.INPUT, said, "the whole file", step)


def _other_kernel(boot: Boot, seen: Booted) -> Finding | None:
    if not boot.kernel or not seen.kernel or boot.kernel == seen.kernel:
        return None
    said = f"kernel {boot.kernel} was started, initrd and root have the modules of {seen.kernel}"
    step = "take kernel and initrd of one version: the boot script must name both by version"
    return fail(FailureClass.COMPARISON, said, f"kernel {seen.kernel}", step)


def _broken_off(root: Event | None) -> Finding | None:
    if root is None or root.sent >= root.size:
        return None
    said = f"the HTTP server was gone in the middle of its root: {_mib(root.sent)} of {_mib(root.size)} came"
    step = "see whether the server or the network between went down, and boot it again"
    return fail(FailureClass.DEPENDENCY, said, "the whole root", step)


def _signed(sign: Sign) -> Finding:
    return fail(sign.failure_class, sign.seen, EXPECTED, sign.next_step)


def _flooded(boot: Boot) -> Finding | None:
    if boot.ended != "flood":
        return None
    said = f"it was stopped after {boot.seconds:.0f} s, since its console had no end; {_far(boot)}"
    step = f"see what repeats itself at the end of the console of {boot.name}, and end that"
    return fail(FailureClass.RUNTIME, said, EXPECTED, step)


def _far(boot: Boot) -> str:
    life: Life | None = console.LIVES.get(boot.stopped_at)
    return life.seen if life else "its console says nothing that is known"


def _silent(boot: Boot, seconds: float) -> Finding:
    """No cause is known: how far it came."""
    far = _far(boot)
    step = f"read the console of {boot.name} from there on"
    if boot.ended == "exit":
        return fail(FailureClass.RUNTIME, f"it stopped by itself after {boot.seconds:.0f} s; {far}", EXPECTED, step)
    said = f"no report within {seconds:.0f} s; {far}"
    step = f"{step}; give it more time if it was merely slow"
    return unknown(FailureClass.RUNTIME, said, EXPECTED, step)


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
