"""Patterns of messages about the host itself, which can stand in any tool's output: kernel, GPU driver, limits, libraries.

Xid numbers: https://docs.nvidia.com/deploy/xid-errors/. The kernel's log has `NVRM: Xid (PCI:0000:3b:00): 79, …`; tools that watch
it print the part from `Xid` on.
"""

import re

from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.stages.shared.reader_errors import Pattern, pattern, short

_PROGRAM = frozenset({13, 31, 43, 45, 66, 68, 69, 137})
"""Xid numbers that NVIDIA lists as faults of the program first: illegal access, reset channel, clean-up after an exit."""
_FOLLOWS = frozenset({45, 154})
"""Xid numbers that only tell what was done about an earlier one: channels removed, recovery action changed."""
_JOURNAL_HOST = r"(?:(?P<host>[\w.-]+) kernel: )?"
_JOURNAL_LINE = r"(?:\b(?P<host>[\w.-]+) kernel: [^\n]*?)?"
"""Beginning of a line of a kernel's journal, with whatever stands between its head and an error."""

MEMLOCK_STEP = "set LimitMEMLOCK=infinity for the services rke2-server and rke2-agent: containers inherit the limit from there"
SHM_STEP = "mount an emptyDir with medium Memory at /dev/shm of the pod: the container runtime's default has 64 MiB"


def _xid(match: re.Match[str], line: str) -> ToolError:
    number = int(match["number"])
    rank = CauseRank.OPERATION if number in _PROGRAM else CauseRank.DEVICE
    return ToolError(
        cause=short(f"Xid {number}: {match['what']}"),
        failure_class=FailureClass.RUNTIME if number in _PROGRAM else FailureClass.HARDWARE,
        line=line,
        host=match["host"] or "",
        device=match["device"],
        next_step="" if number in _PROGRAM else "nvidia-smi -q and the kernel's log of this node: reset or replace this GPU",
        rank=CauseRank.CONSEQUENCE if number in _FOLLOWS else rank,
    )


def _memlock(needle: str) -> Pattern:
    return pattern(
        needle,
        r"^(?:[^\n]*?\[(?P<host>[\w.-]+):\d+(?::\d+)?\][^\n]*?UCX +ERROR +(?:(?P<device>\w+_\d+): )?)?(?P<what>[^\n]*)",
        FailureClass.INPUT,
        "the limit of locked memory is too low: {what}",
        CauseRank.SETTING,
        next_step=MEMLOCK_STEP,
    )


PATTERNS = (
    Pattern(
        "Xid (",
        re.compile(
            rf"{_JOURNAL_HOST}(?:NVRM: )?(?<!S)Xid \((?P<device>[^)\n]{{1,40}})\): (?P<number>\d{{1,4}}),? ?(?P<what>[^\n]*)"
        ),
        _xid,
    ),
    pattern(
        "fallen off the bus",
        rf"{_JOURNAL_HOST}NVRM:[^\n]*fallen off the bus",
        FailureClass.HARDWARE,
        "a GPU has fallen off the bus",
        CauseRank.DEVICE,
        next_step="nvidia-smi -L and the kernel's log of this node: reseat, reset or replace this GPU",
    ),
    pattern(
        " is 0M @ 0x0",
        rf"{_JOURNAL_HOST}NVRM: (?P<what>BAR\d is 0M @ 0x0) \(PCI:(?P<device>[\w:.]+)\)",
        FailureClass.HARDWARE,
        "the firmware gave a GPU's memory no address: {what}",
        CauseRank.DEVICE,
        next_step="switch on Above 4G Decoding (and Resizable BAR) in the firmware's setup, or boot with pci=realloc",
    ),
    pattern(
        "RmInitAdapter failed",
        rf"{_JOURNAL_HOST}NVRM: GPU (?P<device>[\w:.]+): (?P<what>RmInitAdapter failed!?[^\n]*)",
        FailureClass.HARDWARE,
        "the driver cannot start a GPU: {what}",
        CauseRank.DEVICE,
        next_step="power the machine off and on; if it fails again, reseat or replace this GPU",
    ),
    pattern(
        "No NVIDIA GPU found",
        rf"{_JOURNAL_HOST}NVRM: No NVIDIA GPU found",
        FailureClass.HARDWARE,
        "the driver finds no GPU",
        CauseRank.DEVICE,
        next_step="lspci -nnk -d 10de: on the node: a GPU that is missing, has no memory regions, or is held by vfio-pci",
    ),
    pattern(
        "Port module event[error]",
        rf"{_JOURNAL_LINE}\bmlx\d_core (?P<device>[\w:.]+): Port module event\[error\]: (?P<what>[^\n]*)",
        FailureClass.HARDWARE,
        "the adapter reports its cable or module: {what}",
        CauseRank.DEVICE,
        next_step="reseat or replace the cable or transceiver of this port (mlxlink -d DEVICE -m)",
    ),
    pattern(
        "Hardware Error",
        rf"{_JOURNAL_LINE}(?:mce|EDAC|\{{\d+\}})[^\n]*\[?Hardware Error\]?:? ?(?P<what>[^\n]*)",
        FailureClass.HARDWARE,
        "the processor or memory reports a hardware error: {what}",
        CauseRank.DEVICE,
        next_step="read the machine's event log (ipmitool sel list)",
    ),
    pattern(
        "memlock limits are set too low",
        r"memlock limits are set too low[\s\S]*?Local host: +(?P<host>[\w.-]+)[\s\S]*?Device: +(?P<device>\w+)"
        r"\s+Memlock limit: (?P<what>\S+)",
        FailureClass.INPUT,
        "the limit of locked memory is too low: {what}",
        CauseRank.SETTING,
        next_step=MEMLOCK_STEP,
        spans=True,
    ),
    *(_memlock(needle) for needle in ("memlock", "max locked memory", "ulimit -l")),
    pattern(
        "error while loading shared libraries",
        r"error while loading shared libraries: (?P<what>[^\n]*)",
        FailureClass.DEPENDENCY,
        "a library is missing in the image: {what}",
        CauseRank.SETTING,
        next_step="use an image that has this library, or correct LD_LIBRARY_PATH",
    ),
    pattern(
        "/dev/shm",
        r"(?:(?P<host>[\w.-]+):\d+:\d+ \[\d+\] )?[^\n]*/dev/shm[^\n]*No space left on device",
        FailureClass.INPUT,
        "/dev/shm of the container is too small",
        CauseRank.SETTING,
        next_step=SHM_STEP,
    ),
    pattern(
        "Out of memory: Killed process",
        rf"{_JOURNAL_LINE}Out of memory: Killed process \d+ \((?P<what>[^)\n]*)\)",
        FailureClass.RUNTIME,
        "the kernel ran out of memory and killed {what}",
        CauseRank.OPERATION,
        next_step="give the pod or the machine more memory",
    ),
)
"""Patterns to put into the table of every tool whose output can hold kernel messages."""
