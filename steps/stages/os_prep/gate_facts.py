"""Judges the facts of one machine, beside its host settings: system, clock, swap, disks, and by `gate_driver` its driver."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from steps.contract.verdict import FailureClass
from steps.stages.os_prep import gate_driver
from steps.stages.os_prep.contract import Facts, NodeClock, NodesExpectation
from steps.stages.shared.finding import Finding, fail, unknown

UNREACHED = "give the node a time server that it can reach"
RESERVE_MIB, RESERVE_PERCENT = 2048, 5
"""Space that must stay free on a disk that RKE2 fills (`playbooks/module_utils/nodeprofile/storage.py` has the reasons)."""


def findings(facts: Facts, skew: float | None, want: NodesExpectation) -> Iterator[Finding]:
    """Yield every problem that the facts of one machine show, from system and driver to clock and disks."""
    yield from _system(facts, want)
    yield from _reboot(facts)
    yield from gate_driver.findings(facts, want)
    yield from _selinux(facts, want)
    yield from _clock(facts.clock, skew, want)
    yield from _disks(facts, want)
    if want.swap_off and facts.swap_mib:
        step = "swapoff --all, and see what turns it on"
        yield fail(FailureClass.RUNTIME, f"{facts.swap_mib} MiB of swap are on", "no swap", step)


def _system(facts: Facts, want: NodesExpectation) -> Iterator[Finding]:
    system = f"{facts.os_id} {facts.os_version}"
    if want.systems and not any(fnmatchcase(system, pattern) for pattern in want.systems):
        yield fail(FailureClass.INPUT, system, f"one of {', '.join(want.systems)}", "reinstall the node with a supported system")
    if not _begins(facts.kernel, want.kernel):
        yield fail(FailureClass.INPUT, f"kernel {facts.kernel}", f"one that starts with {want.kernel}", "boot the expected kernel")
    if _version(facts.python) < _version(want.python_min):
        step = (
            "install a newer python3, and name its path in the spec: python of the group, or of the node in the group's overrides"
        )
        yield fail(FailureClass.DEPENDENCY, f"Python {facts.python}", f"Python {want.python_min} or newer", step)


def _reboot(facts: Facts) -> Iterator[Finding]:
    """Yield a problem unless the boot id changed after a reboot that the play asked for: nothing else proves the reboot."""
    if not facts.rebooted_from:
        return
    if not facts.boot_id:
        step = "see what node_profile reads on the node"
        yield unknown(FailureClass.RUNTIME, "no boot id after the reboot", "another boot id", step)
    elif facts.boot_id == facts.rebooted_from:
        seen = f"boot id {facts.boot_id}, as before the reboot"
        step = "read the node's console: it said that it rebooted, and did not"
        yield fail(FailureClass.RUNTIME, seen, "another boot id", step)


def _selinux(facts: Facts, want: NodesExpectation) -> Iterator[Finding]:
    """Yield a problem if SELinux enforces without the plan naming it.

    Without RKE2's own policy, containers get labels that an enforcing kernel denies (https://docs.rke2.io/security/selinux).
    """
    if not facts.selinux:
        yield unknown(FailureClass.RUNTIME, "SELinux's mode is not told", "its mode", "see what node_profile reads on the node")
    if facts.selinux == "enforcing" and want.selinux != "enforcing":
        seen = f"SELinux enforces, and the plan {f'says {want.selinux}' if want.selinux else 'does not say so'}"
        step = "write os.selinux: enforcing, which brings RKE2's policy, or os.selinux: permissive"
        yield fail(FailureClass.INPUT, seen, want.selinux or "permissive, disabled, or a plan for it", step)


def _clock(clock: NodeClock, skew: float | None, want: NodesExpectation) -> Iterator[Finding]:
    limit = want.clock_offset_seconds
    # the time service can be wrong itself, so the controller's clock is compared too
    worst = max((abs(value) for value in (clock.offset_seconds, skew) if value is not None), default=None)
    expected = f"at most {limit} s"
    if worst is None:
        step = "give the node a time service that knows its offset"
        yield unknown(FailureClass.HEALTH, "an offset of the clock that nothing measures", expected, step)
    elif worst > limit:
        yield fail(FailureClass.DEPENDENCY, f"the clock is off by {worst:.3f} s", expected, _remedy(clock, limit))
    if want.clock_synchronized and clock.synchronized is not True:
        answer = "does not say" if clock.synchronized is None else "says no"
        seen = f"whether the clock is synchronized, {clock.service or 'no time service'} {answer}"
        if clock.synchronized is None:
            yield unknown(FailureClass.HEALTH, seen, "a synchronized clock", UNREACHED)
        else:
            yield fail(FailureClass.DEPENDENCY, seen, "a synchronized clock", UNREACHED)


def _remedy(clock: NodeClock, limit: float) -> str:
    """Return the next step for a clock wrong by more than `limit` seconds: mend its time service, or only the controller's."""
    if clock.synchronized is not True:
        return UNREACHED
    if clock.offset_seconds is not None and abs(clock.offset_seconds) > limit:
        return "set it at once (chronyc makestep): a time service that has run for a while corrects it by and by, which takes days"
    return "is its time server right? The node follows it; compare both with the clock of the machine that runs bringup"


def _disks(facts: Facts, want: NodesExpectation) -> Iterator[Finding]:
    """Yield disks with too little free space. RKE2 fills the space that a first bring-up asks for, so later a reserve is enough."""
    seen = {disk.path: disk for disk in facts.disks}
    for path, wanted in sorted(want.disk_free_mib.items()):
        if path not in seen:
            step = "add the path to the profile's disks"
            yield unknown(FailureClass.HEALTH, f"{path} was not measured", f"{wanted} MiB free", step)
            continue
        disk = seen[path]
        # a second run must not fail because the first one filled the disk with images
        least = min(wanted, max(RESERVE_MIB, disk.total_mib * RESERVE_PERCENT // 100)) if facts.disks_used else wanted
        if disk.free_mib < least:
            problem, step = f"{disk.free_mib} MiB free in {path}", "make space, or mount a larger disk"
            yield fail(FailureClass.DEPENDENCY, problem, f"{least} MiB free", step)


def _begins(release: str, start: str) -> bool:
    """Return True if a kernel release begins with `start`, whole numbers only: 6.1 matches 6.1.0, but not 6.11."""
    cut = start[-1:].isdigit() and release[len(start) :][:1].isdigit()
    return release.startswith(start) and not cut


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
