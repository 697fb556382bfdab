"""A folder of this machine, mounted into hosts that have mount namespaces of their own."""

import ctypes
import os
import sys
from typing import Final

_OPEN_TREE, _MOVE_MOUNT = 428, 429
_AT_FDCWD: Final = -100
_CLONE, _CLOEXEC, _RECURSIVE, _EMPTY_PATH = 1, 0o2000000, 0x8000, 0x4
"""Constants of the kernel's interface: linux/mount.h and fcntl.h."""


def mount(source: str, target: str, pid: int) -> None:
    """Mount folder `source` of this mount namespace at `target` of the namespaces of process `pid`. Raises OSError.

    A bind mount cannot cross mount namespaces; a detached copy of the tree (`open_tree`) can be attached in another one.
    """
    child = os.fork()
    if child == 0:
        try:
            _attach(source, target, pid)
            os._exit(0)
        except OSError as error:
            print(f"cannot mount {source} at {target}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if status:
        raise OSError(f"cannot mount {source} at {target} of process {pid}")


def enter(pid: int, *names: str) -> None:
    """Move this process into namespaces of another one, such as `mnt`; all are opened before the first is entered."""
    kernel = ctypes.CDLL(None, use_errno=True)
    for space in [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in names]:
        if kernel.setns(space, 0):
            raise OSError(ctypes.get_errno(), "setns")


def _attach(source: str, target: str, pid: int) -> None:
    kernel = ctypes.CDLL(None, use_errno=True)
    tree = kernel.syscall(_OPEN_TREE, _AT_FDCWD, source.encode(), _CLONE | _CLOEXEC | _RECURSIVE)
    if tree < 0:
        raise OSError(ctypes.get_errno(), "open_tree")
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
    enter(pid, "mnt")
    os.fchdir(root)
    os.chroot(".")
    os.makedirs(target, exist_ok=True)
    if kernel.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, target.encode(), _EMPTY_PATH):
        raise OSError(ctypes.get_errno(), "move_mount")
