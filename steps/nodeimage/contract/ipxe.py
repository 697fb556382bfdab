"""iPXE scripts that start a node: each names its files by full URL; on failure it prints the reason, waits and tries again.

A script never falls through to another way to boot: a node whose server is away waits for it. The kernel and initrd that a script
loads restart the node if they cannot go on, so no node stops for good.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from steps.nodeimage.contract.boot_tests import REPORT_ARGUMENT, TESTS_ARGUMENT

SAID: Final = "bringup:"
"""Start of every line that these scripts print on the console."""
WAIT: Final = 10
"""Seconds between two tries: a server restarts within a few seconds, and a room full of waiting nodes must not overload it."""
RESTART: Final = 60
"""Seconds until a node restarts after its initial RAM disk has given up (no DHCP, server away) or its kernel panicked.

The messages stay readable on the console that long; the console gives nobody a shell. A recipe's own `panic=` wins.
"""
FORWARDING: Final = 60
"""Seconds for which the initial RAM disk asks for an address.

Loading the driver resets the link, and a switch port without edge setting forwards nothing for the next 30 s (spanning tree), nor
does a bond that has not negotiated. live-boot's own limit of 15 s ends in a panic.
"""
LONGEST_ARGUMENTS: Final = 2000
"""Largest number of bytes of kernel arguments: an x86 kernel keeps 2,047 and drops the rest silently."""

SIGNATURE: Final = ".sig"
"""End of the names of files with signatures that iPXE checks, beside the files that they are of."""

_WORD = re.compile(r"[\x21-\x7e]+")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_WHO = ":who"
_PLACED = "--autofree --replace"
"""Options of `chain` by which a script replaces the running one.

Without them a script that is returned to stays on iPXE's stack, which has 4 or 8 kB in a BIOS; a waiting machine loops any number
of times.
"""
_IMAGE = "bringup.image="
_BOOTIF = "BOOTIF=01-${netX/mac:hexhyp}"


class ScriptError(ValueError):
    """Error: the script cannot be rendered; the message names the wrong word, address or name."""


class Loaded(Struct, frozen=True, kw_only=True):
    """Inputs of the iPXE script that boots one version of an image.

    All addresses are absolute URLs. `report` is the server that receives reports (empty: none), `entry` the boot entry of the
    group, and `again` the script that a machine starts when it could load or start nothing (empty: it tries the same files again).
    `image` is the root's digest, `sha256:…`. `tests` are run in a test boot alone. `machines` is MAC address (lower case, with
    colons) → host name (empty: the image's own). Without any machine the script is for all but `others`, which are sent to the
    start script `start`. `signed`: iPXE must verify kernel and initrd by the signatures beside them, which takes an iPXE that is
    built with IMAGE_TRUST_CMD and trusts the signer's root (https://ipxe.org/cmd/imgverify).
    """

    title: str
    kernel: str
    initrd: str
    root: str
    image: str
    arguments: tuple[str, ...] = ()
    report: str = ""
    tests: bool = False
    machines: Mapping[str, str] = {}
    others: tuple[str, ...] = ()
    start: str = ""
    entry: str = ""
    again: str = ""
    signed: bool = False


def arguments(loaded: Loaded) -> tuple[str, ...]:
    """Return all kernel arguments of a boot except those that the script adds for each machine.

    live-boot fetches the root into memory and mounts an overlay over it; nothing is written to a disk. `nonetworking` makes
    live-boot leave /etc/network/interfaces of the image alone.
    """
    own = [f"{_IMAGE}{loaded.image}"]
    if loaded.report:
        own += [f"{REPORT_ARGUMENT}={loaded.report}", *([f"{TESTS_ARGUMENT}=yes"] if loaded.tests else [])]
    fetched = (f"fetch={loaded.root}", f"ethdevice-timeout={FORWARDING}", "nonetworking")
    return ("boot=live", "nopersistence", *fetched, f"panic={RESTART}", *own, *loaded.arguments)


def image_arguments(script: str) -> tuple[str, ...]:
    """Return the kernel arguments in one of our scripts that came from the image and the group.

    Left out are those that every boot has, the location of the release folder, the server for reports, and the machine's name.
    """
    line = next((line.split() for line in script.splitlines() if line.startswith("kernel ")), [])
    start = next((at for at, word in enumerate(line, start=1) if word.startswith(_IMAGE)), len(line))
    end = next((at for at, word in enumerate(line) if word.startswith(_BOOTIF.partition("=")[0])), len(line))
    return tuple(word for word in line[start:end] if word.partition("=")[0] not in {REPORT_ARGUMENT, TESTS_ARGUMENT})


def script(loaded: Loaded) -> str:
    """Return the iPXE script that loads and starts one version of an image. Raises ScriptError."""
    words = arguments(loaded)
    for value in (loaded.kernel, loaded.initrd, loaded.root):
        _absolute(value)
    for word in (loaded.kernel, loaded.initrd, *words):
        _plain(word)
    longest = max(loaded.machines.values(), key=len, default="")
    named = ["initrd=initrd.img", *words, _BOOTIF, *(["systemd.hostname=${node}"] if longest else [])]
    length = len(" ".join(named)) + len(longest)
    if length > LONGEST_ARGUMENTS:
        raise ScriptError(f"the kernel arguments have {length} bytes, a kernel keeps {LONGEST_ARGUMENTS}: leave some out")
    lines = [
        "#!ipxe",
        f"# {_title(loaded.title)}",
        *_guard(loaded.machines, loaded.entry),
        *(_sent_on(loaded.others, loaded.start) if loaded.others and not loaded.machines else ()),
        ":load",
        "imgfree",  # images of an earlier try
        f"echo {SAID} loads {_title(loaded.title)}",
        f"kernel --name vmlinuz {loaded.kernel} {' '.join(named)} || goto failed",
        f"initrd --name initrd.img {loaded.initrd} || goto failed",
        *(_verified(loaded) if loaded.signed else ()),
        f"echo {SAID} starts the kernel",
        "boot || goto failed",
        *_again("could not load or start it: ${errno}", "load", loaded.again),
    ]
    return "\n".join(lines) + "\n"


def _verified(loaded: Loaded) -> Sequence[str]:
    """Return script lines that go on with verified files only.

    From `imgtrust` on iPXE refuses unverified scripts too: if the kernel does not start, this script tries it again by itself.
    """
    return [
        f"imgverify vmlinuz {loaded.kernel}{SIGNATURE} || goto failed",
        f"imgverify initrd.img {loaded.initrd}{SIGNATURE} || goto failed",
        "imgtrust --permanent || goto failed",
    ]


def chain(url: str, start: str = "") -> str:
    """Return a script that continues with the script at `url`, such as the TFTP server's, which stays when images change.

    If that script cannot be loaded it tries again; with `start` it continues with the start script instead, because the machine's
    own script may have changed. Raises ScriptError.
    """
    _loadable(url)
    lines = [
        "#!ipxe",
        ":next",
        "isset ${netX/ip} || dhcp || goto failed",
        f"echo {SAID} asks {url}",
        f"chain {_PLACED} {url} || goto failed",
        *_again(f"could not go on with {url}: ${{errno}}", "next", start),
    ]
    return "\n".join(lines) + "\n"


def first(machines: str, known: Iterable[str], default: str, start: str) -> str:
    """Return the start script, which may be given to every machine; `start` is its own URL.

    A machine of `known` (MAC addresses) continues with its own script, whose URL begins with `machines`, and with no other, however
    long that cannot be loaded: a short failure of the server must not boot it as another kind of machine. All other machines
    continue with the default (empty: none). A machine that cannot continue starts over, and may be known then. Raises ScriptError.
    """
    for url in (machines, *((default,) if default else ())):
        _loadable(url)
    own, others = f"{machines}${{netX/mac:hexhyp}}.ipxe", [f"echo {SAID} there is no script for ${{netX/mac}}"]
    if default:
        others = [f"echo {SAID} no script for ${{netX/mac}} alone, asks {default}", f"chain {_PLACED} {default} ||"]
    lines = [
        "#!ipxe",
        ":next",
        "isset ${netX/ip} || dhcp || goto failed",
        *(f"iseq ${{netX/mac}} {mac} && goto own ||" for mac in _macs(known)),
        *others,
        "goto failed",
        ":own",
        f"echo {SAID} asks {own}",
        f"chain {_PLACED} {own} || goto failed",
        *_again("could not go on with a script for ${netX/mac}: ${errno}", "next", start),
    ]
    return "\n".join(lines) + "\n"


def is_guarded(script: str) -> bool:
    """Return True if one of our scripts continues only on the machines that it names."""
    return f"\n{_WHO}\n" in script


def _sent_on(others: Sequence[str], start: str) -> Sequence[str]:
    """Return script lines that send the machines `others`, which have their own scripts, to the start script.

    Without them such a machine would boot as another kind of machine after its own script could not be loaded.
    """
    _loadable(start)
    return [
        *(f"iseq ${{netX/mac}} {mac} && goto elsewhere ||" for mac in _macs(others)),
        "goto load",
        ":elsewhere",
        f"echo {SAID} ${{netX/mac}} has a script of its own, asks {start}",
        f"sleep {WAIT}",
        *_anew(start),
        "goto elsewhere",
    ]


def _guard(machines: Mapping[str, str], entry: str) -> Sequence[str]:
    """Return script lines that continue only on the named machines and set their host names; other machines load `entry` again."""
    if not machines:
        return []
    if odd := [host for host in machines.values() if host and not _HOST.fullmatch(host)]:
        raise ScriptError(f"{odd[0]!r} is no host name")
    bare = sorted(mac for mac, host in machines.items() if not host)
    if bare and len(bare) < len(machines):
        raise ScriptError(f"{bare[0]} has no host name, others have: name all of them, or none")
    tests = [f"iseq ${{netX/mac}} {mac} && set node {machines[mac] or 'known'} ||" for mac in _macs(machines)]
    return [
        _WHO,
        "clear node ||",  # of a list that it was in before
        *tests,
        "isset ${node} && goto load ||",
        f"echo {SAID} this script is for other machines, not for ${{netX/mac}}",
        f"sleep {WAIT}",
        *_anew(entry),
        "goto who",
    ]


def _macs(addresses: Iterable[str]) -> Sequence[str]:
    ordered = sorted(addresses)
    if odd := [mac for mac in ordered if not _MAC.fullmatch(mac)]:
        raise ScriptError(f"{odd[0]!r} is no MAC address in lower case with colons, as 52:54:00:12:34:56")
    return ordered


def _again(problem: str, back: str, start: str = "") -> Sequence[str]:
    """Return the script lines at label `failed`: print the problem, wait, and load `start` (if given) or go to label `back`."""
    lines = [":failed", f"echo {SAID} {problem}", f"echo {SAID} tries again in {WAIT} s", f"sleep {WAIT}"]
    return [*lines, *_anew(start), f"goto {back}"]


def _anew(start: str) -> Sequence[str]:
    """Return script lines that replace this script by another one; if that cannot be loaded, this script continues."""
    if not start:
        return []
    _loadable(start)
    return [f"chain {_PLACED} {start} ||"]


def _loadable(url: str) -> None:
    _absolute(url)
    _plain(url)


def _absolute(url: str) -> None:
    if not re.match(r"https?://[^/]+/.", url):
        raise ScriptError(f"{url!r} is no absolute http URL of a file")


def _plain(word: str) -> None:
    """Raise ScriptError if iPXE would split or expand this word, or take it for its operator `||` or `&&`."""
    if not _WORD.fullmatch(word) or "${" in word or word in {"||", "&&"}:
        raise ScriptError(f"{word!r} cannot stand in an iPXE script: printable ASCII without spaces and ${{…}} only")


def _title(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9 ._:+-]", "?", text)
