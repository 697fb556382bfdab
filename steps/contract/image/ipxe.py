"""iPXE scripts that start a node: what they load is named whole, and where it fails they say so, wait and try again.

They never fall through to another way to boot: a node that its server cannot serve waits for it, and starts nothing else; nor does
what they load stop for good where it cannot go on.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from steps.contract.image.booting import REPORT_ARGUMENT, TESTS_ARGUMENT

SAID: Final = "bringup:"
"""Every line of ours on a console begins with it."""
WAIT: Final = 10
"""Seconds between two tries: a server that restarts is back within a few, and a whole room that waits does not storm it."""
RESTART: Final = 60
"""Seconds until a node begins anew whose initial RAM disk has given up (no DHCP, a server that went away) or whose kernel panicked:
so long its words can be read on its console, which gives nobody a shell. A recipe's own `panic=` counts instead."""
FORWARDING: Final = 60
"""Seconds that a node's initial RAM disk asks for an address: its driver resets the link, and a switch port without an edge setting
forwards nothing for the next 30 (spanning tree), or until its bond has answered. live-boot's own 15 end in a panic."""
LONGEST_ARGUMENTS: Final = 2000
"""Bytes of kernel arguments: an x86 kernel keeps 2,047 and drops the rest without a word."""

_WORD = re.compile(r"[\x21-\x7e]+")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_WHO = ":who"
_PLACED = "--autofree --replace"
"""How a script goes on with another one: in its place. One to which that comes back would be kept on iPXE's stack, of 4 or 8 kB in
a BIOS, and a machine that waits comes round any number of times."""
_IMAGE = "bringup.image="
_BOOTIF = "BOOTIF=01-${netX/mac:hexhyp}"


class ScriptError(ValueError):
    """The script cannot be rendered; the message names what is wrong."""


class Loaded(Struct, frozen=True, kw_only=True):
    """What a node loads: absolute URLs of the files of one version, the root's digest (`sha256:…`), more kernel arguments, the URL
    that hears its report (empty: none) and whether its tests are run (in a test boot alone), and which machines the script
    is for: MAC address (lower case, with colons) → host name (empty: the image's own). Without any machine it is for all but
    `others`, which are sent to `start`, the URL of the script that finds a machine's own. `entry` is the URL of what the group is
    told to load, `again` where a machine begins anew that could load or start nothing; without them it tries the same again."""

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


def arguments(loaded: Loaded) -> tuple[str, ...]:
    """All kernel arguments. live-boot fetches the root into memory and lays an overlay over it; nothing is kept on a disk, and what
    the image says of its network stays: `nonetworking` is live-boot's word for leaving /etc/network/interfaces alone."""
    told = [f"{_IMAGE}{loaded.image}"]
    if loaded.report:
        told += [f"{REPORT_ARGUMENT}={loaded.report}", *([f"{TESTS_ARGUMENT}=yes"] if loaded.tests else [])]
    fetched = (f"fetch={loaded.root}", f"ethdevice-timeout={FORWARDING}", "nonetworking")
    return ("boot=live", "nopersistence", *fetched, f"panic={RESTART}", *told, *loaded.arguments)


def given(script: str) -> tuple[str, ...]:
    """The kernel arguments that the image and its group gave to a script of ours: neither those that every boot has, nor where the
    tree lies, who hears the node, and which machine it is."""
    line = next((line.split() for line in script.splitlines() if line.startswith("kernel ")), [])
    start = next((at for at, word in enumerate(line, start=1) if word.startswith(_IMAGE)), len(line))
    end = next((at for at, word in enumerate(line) if word.startswith(_BOOTIF.partition("=")[0])), len(line))
    return tuple(word for word in line[start:end] if word.partition("=")[0] not in {REPORT_ARGUMENT, TESTS_ARGUMENT})


def script(loaded: Loaded) -> str:
    """The script that loads one version. Raises ScriptError."""
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
        "imgfree",
        f"echo {SAID} loads {_title(loaded.title)}",
        f"kernel --name vmlinuz {loaded.kernel} {' '.join(named)} || goto failed",
        f"initrd --name initrd.img {loaded.initrd} || goto failed",
        f"echo {SAID} starts the kernel",
        "boot || goto failed",
        *_again("failed", "could not load or start it: ${errno}", "load", loaded.again),
    ]
    return "\n".join(lines) + "\n"


def chain(url: str, start: str = "") -> str:
    """The script that goes on with another one, as the TFTP server's: it stays the same when images change. Where it cannot, it
    tries again; with `start` it begins with that one anew, for what is its own may have changed. Raises ScriptError."""
    _loadable(url)
    lines = [
        "#!ipxe",
        ":next",
        "isset ${netX/ip} || dhcp || goto failed",
        f"echo {SAID} asks {url}",
        f"chain {_PLACED} {url} || goto failed",
        *_again("failed", f"could not go on with {url}: ${{errno}}", "next", start),
    ]
    return "\n".join(lines) + "\n"


def first(machines: str, known: Iterable[str], default: str, start: str) -> str:
    """The script that every machine may be told, whose own URL is `start`. Who is `known`, by MAC address, goes on with a script of
    its own, whose URL begins with `machines`, and with no other however long that cannot be had: a server that fails for a moment
    must not make it boot as any other does. All others go on with the default (empty: none). Whoever cannot go on begins anew, and
    may be known then. Raises ScriptError."""
    for one in (machines, *((default,) if default else ())):
        _loadable(one)
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
        *_again("failed", "could not go on with a script for ${netX/mac}: ${errno}", "next", start),
    ]
    return "\n".join(lines) + "\n"


def is_guarded(script: str) -> bool:
    """Whether a script of ours lets only the machines go on that it names."""
    return f"\n{_WHO}\n" in script


def _sent_on(others: Sequence[str], start: str) -> Sequence[str]:
    """Lines that send machines away that have a script of their own: one that could not be had for a moment must not make its
    machine boot as any other does."""
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
    """Lines that let only the named machines go on, each with its host name; others ask for the list of today again."""
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


def _macs(found: Iterable[str]) -> Sequence[str]:
    ordered = sorted(found)
    if odd := [mac for mac in ordered if not _MAC.fullmatch(mac)]:
        raise ScriptError(f"{odd[0]!r} is no MAC address in lower case with colons, as 52:54:00:12:34:56")
    return ordered


def _again(label: str, said: str, back: str, start: str = "") -> Sequence[str]:
    lines = [f":{label}", f"echo {SAID} {said}", f"echo {SAID} tries again in {WAIT} s", f"sleep {WAIT}"]
    return [*lines, *_anew(start), f"goto {back}"]


def _anew(start: str) -> Sequence[str]:
    """Lines that begin with another script in place of this one; where that cannot be had, this one goes on."""
    if not start:
        return []
    _loadable(start)
    return [f"chain {_PLACED} {start} ||"]


def _loadable(url: str) -> None:
    """A URL that a script names by itself."""
    _absolute(url)
    _plain(url)


def _absolute(url: str) -> None:
    if not re.match(r"https?://[^/]+/.", url):
        raise ScriptError(f"{url!r} is no absolute http URL of a file")


def _plain(word: str) -> None:
    """No word that iPXE would split, expand or take for its own `||`."""
    if not _WORD.fullmatch(word) or "${" in word or word in {"||", "&&"}:
        raise ScriptError(f"{word!r} cannot stand in an iPXE script: printable ASCII without spaces and ${{…}} only")


def _title(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9 ._:+-]", "?", text)
