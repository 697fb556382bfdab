"""Sandbox of a build: bubblewrap command lines in which a build tool sees this machine's programs, and no files but its own.

The root of the sandbox is an empty folder into which folders of this machine are bound read-only, one by one. Homes, /var, /run,
/tmp and mounted media are left out. So a path such as /software can be made although this machine has no such folder, and a build
can write nowhere else. Builds have no network; only the program that fetches sources has.
As root the program runs as user `nobody`, which EasyBuild prefers and which reads nothing that only root may read.
"""

import os
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

PROGRAM: Final = "bwrap"
BUILD: Final = "/build"
"""Folder of the build's own files in the sandbox, the same on every machine, because debug information names it."""
NOBODY: Final = 65534
"""User and group ID of a build that root starts."""
_TOP: Final = "boot bringup build dev home lost+found media mnt proc root run srv sys tmp var"
LEFT_OUT: Final = frozenset(f"/{name}" for name in _TOP.split())
"""Folders of this machine that a build does not see, unless what it needs lies in them."""
_DATABASES: Final = ("/var/lib/dpkg", "/var/lib/rpm")
"""Package databases, in which EasyBuild looks for packages of the operating system that an easyconfig names."""
_RESOLVER: Final = "/run/systemd/resolve"
"""Folder to which /etc/resolv.conf may be a link; only a fetch needs it."""
_SPACES: Final = ("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
MOST_PROCESSES: Final = 16384
"""Limit of processes of the build's user: a fork bomb ends, `make -j256` does not."""


class HostEntry(Struct, frozen=True):
    """Entry of this machine's file system to bind into the sandbox, or to make again if it is a link (`link` is its target)."""

    path: str
    link: str = ""


class HostView(Struct, frozen=True, kw_only=True):
    """Folders of this machine that a sandbox shows.

    `entries` are bound read-only, `opened` are folders that are made, because places of the build lie in them. `hidden` are
    folders below an entry that are covered by empty ones. `programs` are bound again above these: interpreters in a home, say.
    """

    entries: tuple[HostEntry, ...]
    opened: tuple[str, ...]
    hidden: tuple[str, ...]
    programs: tuple[str, ...]


class SandboxMount(Struct, frozen=True):
    """Folder or file of the host at a place in the sandbox."""

    source: str
    place: str
    writable: bool = False


class SandboxLimits(Struct, frozen=True, kw_only=True):
    """Limits of every process in a sandbox; 0 sets none. Core files are never written."""

    processes: int = 0
    memory_bytes: int = 0


class SandboxedWords(Struct, frozen=True, kw_only=True):
    """A program for the sandbox: its words, mounts, environment and limits; `network` is for fetching alone."""

    words: tuple[str, ...]
    mounts: tuple[SandboxMount, ...]
    environment: Mapping[str, str]
    limits: SandboxLimits = SandboxLimits()
    folder: str = BUILD
    network: bool = False


def view_host(places: Iterable[str], hidden: Iterable[Path], programs: Iterable[Path]) -> HostView:
    """Return what a sandbox shows of this machine.

    `places` are paths at which the build has folders, such as the install root. `hidden` are folders that it must not see,
    `programs` folders that it needs even if they lie in a folder that is left out.
    """
    targets = tuple(dict.fromkeys((*places, BUILD)))
    covered = sorted({str(folder.resolve()) for folder in hidden if folder.exists()})
    opened = list[str]()
    entries = tuple(_entries("/", targets, covered, opened))
    shown = tuple(entry.path for entry in entries if not entry.link)
    needed = [str(folder.resolve()) for folder in programs if folder.exists()]
    rebound = tuple(place for place in dict.fromkeys(needed) if not _is_in(place, shown) or _is_in(place, covered))
    return HostView(
        entries=entries,
        opened=tuple(opened),
        hidden=tuple(folder for folder in covered if _is_in(folder, (*shown, *rebound)) and folder not in rebound),
        programs=rebound,
    )


def _is_in(place: str, folders: Iterable[str]) -> bool:
    return any(place == folder or place.startswith(f"{folder}/") for folder in folders)


def _entries(folder: str, targets: Sequence[str], covered: Sequence[str], opened: list[str]) -> Iterator[HostEntry]:
    """Yield the entries of a folder in which places of the build lie; folders on the way to these are added to `opened`.

    What is in a covered folder is left out, also if a place of the build lies in there.
    """
    try:
        with os.scandir(folder) as scan:
            children = sorted(scan, key=lambda child: child.name)
    except OSError:
        children = []
    for child in children:
        path = f"{folder.rstrip('/')}/{child.name}"
        if path in LEFT_OUT or path in targets:
            continue
        if any(target.startswith(f"{path}/") for target in targets):
            opened.append(path)
            yield from _entries(path, targets, covered, opened)
        elif _is_in(path, covered):
            continue
        elif child.is_symlink():
            yield HostEntry(path, os.readlink(path))
        elif child.is_dir() or child.is_file():
            yield HostEntry(path)


def limits(memory_mib: int = 0) -> SandboxLimits:
    """Return the limits of a build with so much memory (MiB; 0: unlimited), within what this process may set."""
    # the embedded engine limits the data of each step to its pod's memory, and nobody may raise a hard limit
    return SandboxLimits(
        processes=_within(resource.RLIMIT_NPROC, MOST_PROCESSES), memory_bytes=_within(resource.RLIMIT_DATA, memory_mib << 20)
    )


def _within(limit: int, value: int) -> int:
    _, hard = resource.getrlimit(limit)
    return value if hard == resource.RLIM_INFINITY else min(hard, value)


def command(program: SandboxedWords, host: HostView, *, as_root: bool) -> list[str]:
    """Return the command line that runs a program in the sandbox; pure."""
    # --new-session: in the builder's session a program could type into its terminal (TIOCSTI, CVE-2017-5226)
    line = [PROGRAM, "--die-with-parent", "--new-session", *_SPACES, "--hostname", "build"]
    line += [] if program.network else ["--unshare-net"]
    line += ["--cap-drop", "ALL"]
    # setpriv needs these two to become nobody; bubblewrap has set no_new_privs, so nobody gets them back
    line += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if as_root else []
    line += _root(host)
    line += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm", "--ro-bind-try", "/sys", "/sys"]
    line += [word for place in ("/tmp", "/var/tmp") for word in ("--perms", "1777", "--tmpfs", place)]
    system = (*_DATABASES, _RESOLVER) if program.network else _DATABASES
    for folder in host.hidden:
        line += ["--tmpfs", folder]
    # made here, because bubblewrap makes missing parents of a mount unreadable for others
    for folder in _parents((*system, *host.programs, *(mount.place for mount in program.mounts)), host):
        line += ["--dir", folder]
    for place in system:
        line += ["--ro-bind-try", place, place]
    for folder in host.programs:
        line += ["--ro-bind", folder, folder]
    for folder in host.hidden:
        line += ["--tmpfs", folder] if _is_in(folder, host.programs) else []
    for mount in program.mounts:
        line += ["--bind" if mount.writable else "--ro-bind", mount.source, mount.place]
    line += ["--remount-ro", "/", "--clearenv"]
    for name, value in sorted(program.environment.items()):
        line += ["--setenv", name, value]
    return [*line, "--chdir", program.folder, "--", *_limited(program.limits), *_as_nobody(as_root), *program.words]


def _root(host: HostView) -> list[str]:
    line = ["--tmpfs", "/"]
    for folder in host.opened:
        line += ["--dir", folder]
    for entry in host.entries:
        line += ["--symlink", entry.link, entry.path] if entry.link else ["--ro-bind", entry.path, entry.path]
    return line


def _parents(places: Iterable[str], host: HostView) -> Iterator[str]:
    """Yield the folders above places that no folder of this machine brings, outermost first."""
    shown = {entry.path for entry in host.entries}
    for place in dict.fromkeys(above for path in places for above in _above(path)):
        if not _is_in(place, shown) or _is_in(place, host.hidden):
            yield place


def _above(path: str) -> Iterator[str]:
    parts = path.split("/")[1:-1]
    yield from ("/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _limited(limits: SandboxLimits) -> list[str]:
    words = ["prlimit", "--core=0"]
    words += [f"--nproc={limits.processes}"] if limits.processes else []
    # data, not address space: programs in Go or Java reserve far more addresses than they use
    words += [f"--data={limits.memory_bytes}"] if limits.memory_bytes else []
    return [*words, "--"]


def _as_nobody(as_root: bool) -> list[str]:
    if not as_root:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all", "--"]
