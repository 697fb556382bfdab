"""Reader of a test machine's serial console: how far its boot came, and which line of loader, kernel or systemd ended it. Pure.

Lines of a loader count until a kernel starts; after that only lines of the kernel and its initrd count. For example, an address
that came at the second try is no cause.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from steps.contract import plain_text
from steps.contract.verdict import FailureClass
from steps.nodeimage.contract.ipxe import SAID

# parts of a pattern that may be long are bounded: a console without line ends, of megabytes, is read twice a second
KERNEL_LINE: Final = re.compile(r"Linux version (\S{1,64})")


class Sign(Struct, frozen=True, kw_only=True):
    """Pattern of a console line that names the cause of a failed boot.

    `times` is how often the line must be seen before it proves that nothing more will come (0: never). `general`: the line follows
    from many causes, so a caller that knows a closer one should name that.
    """

    name: str
    pattern: str
    seen: str
    next_step: str
    failure_class: FailureClass = FailureClass.RUNTIME
    times: int = 1
    general: bool = False


class Life(Struct, frozen=True, kw_only=True):
    """Pattern of a console line that shows how far a boot came."""

    name: str
    pattern: str
    seen: str


LIVES_IN_ORDER: Final = (
    Life(name="firmware", pattern=r"SeaBIOS|BdsDxe|UEFI", seen="its firmware started"),
    Life(name="pxe", pattern=r"iPXE|PXE over IPv4", seen="its network card began to boot"),
    Life(name="script", pattern=rf"{SAID} asks", seen="it has an address and the script of the TFTP server"),
    Life(name="loading", pattern=rf"{SAID} loads", seen="it loads kernel and initrd"),
    Life(name="starting", pattern=rf"{SAID} starts the kernel", seen="it has kernel and initrd, and started the kernel"),
    Life(name="kernel", pattern=KERNEL_LINE.pattern, seen="its kernel runs"),
    Life(name="initrd", pattern=r"Loading essential drivers|Begin: ", seen="its kernel runs the initrd"),
    Life(name="fetching", pattern=r"Trying wget", seen="its initrd fetches the root"),
    Life(name="systemd", pattern=r"systemd\[1\]: |Welcome to ", seen="systemd runs in its root"),
    Life(name="up", pattern=r"Reached target .{0,200}[Mm]ulti-?[Uu]ser| login: ", seen="it came up, to a login"),
    Life(name="telling", pattern=r"bringup-report: ", seen="it runs its tests, or tries to report"),
)
"""Signs of life in the order of a boot, the earliest first."""

LOADER_SIGNS: Final = (
    Sign(
        name="wrong-machine",
        pattern=rf"{SAID} this script is for other machines, not for",
        seen="its boot script is for another machine: the addresses differ",
        next_step="compare its MAC address with those of its group, and with the name of its boot script",
        failure_class=FailureClass.COMPARISON,
    ),
    Sign(
        name="no-kernel",
        pattern=r"Exec format error \(https?://ipxe|not a bzImage",
        seen="what the server gave it for a kernel is no kernel",
        next_step="compare the kernel's digest with the manifest, and see what its path in the boot script leads to",
        failure_class=FailureClass.INPUT,
    ),
    Sign(
        name="no-file",
        pattern=r"No such file or directory \(https?://ipxe",
        seen="a file that its boot script names is not on the server",
        next_step="see which path its console names, and publish the image again",
        failure_class=FailureClass.DEPENDENCY,
        times=2,
    ),
    Sign(
        name="no-memory-to-load",
        pattern=r"(Not enough space|No space left on device|Cannot allocate memory|Out of memory) \(https?://ipxe",
        seen="kernel and initrd do not fit into its memory",
        next_step="give it more memory, or make the initrd smaller",
        times=2,
    ),
    Sign(
        name="no-server",
        pattern=r"(Connection (timed out|reset|refused)|Network unreachable|Input/output error|Operation canceled) \(https?://ipxe",
        seen="the HTTP server does not answer it",
        next_step="see whether the server runs and the address in the boot script is its own",
        failure_class=FailureClass.DEPENDENCY,
        times=2,
    ),
    Sign(
        name="no-address",
        pattern=r"No configuration methods succeeded|No offers received|PXE-E1[68]",
        seen="no DHCP server gave it an address",
        next_step="see whether the DHCP server hears this network, and has an address left",
        failure_class=FailureClass.DEPENDENCY,
        times=3,
    ),
    Sign(
        name="nothing-to-boot",
        pattern=r"No more network devices|No bootable (device|option)|Nothing to boot",
        seen="its firmware found nothing to boot from the network",
        next_step="see whether DHCP names a TFTP server and a file, and whether that server has it",
        failure_class=FailureClass.DEPENDENCY,
        general=True,
    ),
    Sign(
        name="not-loaded",
        pattern=rf"{SAID} could not",
        seen="it could not load or start its kernel",
        next_step="look up iPXE's error number in its console",
        failure_class=FailureClass.DEPENDENCY,
        times=3,
        general=True,
    ),
)
"""Causes of a failed boot that iPXE or the firmware shows on the console, the closest cause first."""

KERNEL_SIGNS: Final = (
    Sign(
        name="hardware",
        pattern=r"mce: \[Hardware Error\]|\{\d+\}\[Hardware Error\]|NVRM: Xid \(",
        seen="its processor, memory or a GPU reports a hardware error",
        next_step="read the machine's event log, and boot the image on another machine",
        failure_class=FailureClass.HARDWARE,
        times=0,
    ),
    Sign(
        name="no-driver",
        pattern=r"maybe the ethernet card is not supported by the kernel \S+\s*\Z|ipconfig: no devices to configure",
        seen="its initrd has no driver for the network card that it booted from",
        next_step="put the card's module (`lspci -k` names it) into the initrd, or take a kernel that has it",
        failure_class=FailureClass.DEPENDENCY,
    ),
    Sign(
        name="no-memory",
        pattern=r"Out of memory: Killed|System is deadlocked on memory|Initramfs unpacking failed: write error",
        seen="its memory is full: root and initrd lie in it",
        next_step="give it more memory, or make the image smaller",
        times=0,
    ),
    Sign(
        name="no-space",
        pattern=r"No space left on device",
        seen="a file system in its memory is full",
        next_step="give it more memory (an overlay has half of it, or what overlay-size says), or make the image smaller",
        times=0,
    ),
    Sign(
        name="bad-root",
        pattern=r"Can not mount /dev/loop|SQUASHFS error|[Uu]nknown file system type on /dev/loop",
        seen="what it fetched as root is no whole squashfs",
        next_step="compare the root on the server with the manifest; see that the initrd has squashfs and its compression",
        failure_class=FailureClass.INPUT,
    ),
    Sign(
        name="no-overlay",
        pattern=r"(overlay|aufs) not available|mount overlay on \S{1,200} failed",
        seen="its initrd cannot lay an overlay over the root",
        next_step="put the module overlay into the initrd",
        failure_class=FailureClass.DEPENDENCY,
    ),
    Sign(
        name="no-address-in-initrd",
        pattern=r"ipconfig: no response|no response after \d+ secs",
        seen="its initrd had no answer from a DHCP server",
        next_step="see whether the DHCP server has an address left, and whether the switch port forwards in time",
        failure_class=FailureClass.DEPENDENCY,
        times=3,
    ),
    Sign(
        name="no-init",
        pattern=r"Requested init .{0,200} failed|No working init found|run-init: .{0,200}: No such file",
        seen="its root has no program to start",
        next_step="see in the sandbox tests whether the root is whole",
    ),
    Sign(
        name="no-root",
        pattern=r"Unable to find a (live file system on the network|medium containing a live file system)",
        seen="its initrd could not fetch the root",
        next_step="see the lines of wget on its console, and whether the server runs",
        failure_class=FailureClass.DEPENDENCY,
        general=True,
    ),
    Sign(
        name="panic",
        pattern=r"Kernel panic - not syncing",
        seen="its kernel ended in a panic",
        next_step="read the lines before `Kernel panic` on its console",
        general=True,
    ),
)
"""Causes of a failed boot that the kernel, its initrd or systemd shows on the console, the closest cause first."""

LAST_LINES: Final = 40
"""Number of console lines that are kept with a boot."""
LONGEST_LINE: Final = 200
"""Number of characters of a console line that are kept."""

SIGNS: Final[Mapping[str, Sign]] = {sign.name: sign for sign in (*LOADER_SIGNS, *KERNEL_SIGNS)}
"""Name → cause of a failed boot."""
LIVES: Final[Mapping[str, Life]] = {life.name: life for life in LIVES_IN_ORDER}
"""Name → sign of life, which tells how far a boot came."""

_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>78cM])")


class Reading(Struct, frozen=True, kw_only=True):
    """State of a boot as its console shows it; made by `read`.

    `name` is the cause of a failure (of SIGNS), or else the last sign of life (of LIVES); `over`: nothing more will come; `kernel`
    is the release of the kernel that started.
    """

    name: str = ""
    over: bool = False
    kernel: str = ""


def strip_escapes(text: str) -> str:
    """Return a console's text without terminal control sequences, with plain line ends."""
    return _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def last_lines(text: str) -> tuple[str, ...]:
    """Return the last LAST_LINES lines of a console that have text, each cut to LONGEST_LINE characters."""
    lines = [line for line in strip_escapes(text).split("\n") if line.strip()]
    return tuple(plain_text.line(line)[:LONGEST_LINE] for line in lines[-LAST_LINES:])


def read(text: str) -> Reading:
    """Return the state of a boot from all text that its console has shown so far."""
    clean = strip_escapes(text)
    started = list(KERNEL_LINE.finditer(clean))
    # a firmware's screen ends lines at 80 signs, wherever that is
    signs, lines = (KERNEL_SIGNS, clean[started[-1].start() :]) if started else (LOADER_SIGNS, clean.replace("\n", ""))
    kernel = started[-1].group(1) if started else ""
    causes = [sign for sign in signs if _holds(sign, lines)]
    over = any(0 < sign.times <= len(re.findall(sign.pattern, lines)) for sign in causes)
    if causes:
        return Reading(name=causes[0].name, over=over, kernel=kernel)
    life = next((life for life in reversed(LIVES_IN_ORDER) if re.search(life.pattern, clean)), None)
    return Reading(name=life.name if life else "", kernel=kernel)


def cause_line(text: str, name: str) -> str:
    """Return the first line of a console that shows the cause `name` (of SIGNS), so that it can be quoted; empty if none does.

    A line that is too long is cut between words, because half a secret would not be recognised and redacted afterwards.
    """
    sign = SIGNS.get(name)
    clean = strip_escapes(text)
    if sign is None:
        return ""
    started = list(KERNEL_LINE.finditer(clean))
    lines = clean[started[-1].start() :] if started else clean
    match = re.search(sign.pattern, lines)
    if match is None:
        # a firmware's screen broke the line: the words alone are left
        joined = re.search(sign.pattern, lines.replace("\n", ""))
        return plain_text.truncate(plain_text.line(joined[0].strip()), LONGEST_LINE) if joined else ""
    begin = max(lines.rfind("\n", 0, match.start()) + 1, match.start() - LONGEST_LINE // 2)
    end = lines.find("\n", match.end())
    line = lines[begin : min(end if end >= 0 else len(lines), match.end() + LONGEST_LINE)]
    if begin > 0 and lines[begin - 1] not in "\n ":
        line = line.partition(" ")[2]
    return plain_text.truncate(plain_text.line(line.strip()), LONGEST_LINE)


def _holds(sign: Sign, text: str) -> bool:
    """Return True if the sign was seen and the boot did not go on after it: a failed try is no cause if the next one succeeded."""
    ends = [match.end() for match in re.finditer(sign.pattern, text)]
    if not ends:
        return False
    return sign.times <= len(ends) or not any(re.search(life.pattern, text[ends[-1] :]) for life in LIVES_IN_ORDER)
