"""Linux system calls that Python 3.11 lacks: namespaces, mounts, flushing, and the death of a child with its parent."""

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path
from typing import Final

NEW_NS: Final = 0x00020000
NEW_UTS: Final = 0x04000000
NEW_IPC: Final = 0x08000000
NEW_USER: Final = 0x10000000
NEW_PID: Final = 0x20000000
NEW_NET: Final = 0x40000000

RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH: Final = 2
_SET_PDEATHSIG: Final = 1
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP (netdevice(7))
_SYS_ADMIN: Final = 21  # number of the capability in <linux/capability.h>

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move this process into new namespaces, which `flags` names. Raises OSError."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: Path, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system at `target`, or with flag BIND a folder or file. Raises OSError."""
    words = [part.encode() for part in (source, str(target), kind)]
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None), f"mount {kind or source} on {target}")


def unmount(target: Path) -> None:
    """Detach a mount: it is no longer visible, and ends when nobody uses it. Raises OSError."""
    _checked(_libc.umount2(str(target).encode(), _DETACH), f"unmount {target}")


def die_with_parent(signal: int) -> None:
    """Ask the kernel to send this process a signal when the thread that started it ends. Raises OSError."""
    _checked(_libc.prctl(_SET_PDEATHSIG, signal, 0, 0, 0), "prctl")


def flush(folder: Path) -> None:
    """Write to disk all that the file system of a folder still holds in memory. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _checked(_libc.syncfs(handle), f"syncfs {folder}")
    finally:
        os.close(handle)


def loopback_up() -> None:
    """Start the loopback interface of a new network namespace, which programs that talk to themselves need. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sh22x", b"lo", 0)))
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh22x", b"lo", flags | _UP))


def host_name(name: bytes) -> None:
    """Set the host name of this process's UTS namespace. Raises OSError."""
    _checked(_libc.sethostname(name, len(name)), "sethostname")


def may_mount() -> bool:
    """Return True if this process may mount: its user is root and has the capability SYS_ADMIN."""
    status = Path("/proc/self/status").read_text().splitlines()
    effective = next((line.split()[1] for line in status if line.startswith("CapEff:")), "0")
    return os.geteuid() == 0 and bool(int(effective, 16) >> _SYS_ADMIN & 1)


def _checked(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
