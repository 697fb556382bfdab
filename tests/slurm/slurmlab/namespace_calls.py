"""Calls a function inside the namespaces of a host, in a process of its own that has all modules of the test already."""

import os
import pickle
import traceback
from collections.abc import Callable
from typing import TypeVar

from slurmlab import shared_folder

Result = TypeVar("Result")
NAMESPACES = ("ipc", "uts", "net", "pid", "mnt")
"""In the order in which they are entered: after the last one the paths of the others are those of the host."""


def call(pid: int, function: Callable[[], Result]) -> Result:
    """Return the result of a function that runs as on the host of process `pid`. Raises RuntimeError with its traceback."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "wb") as pipe:
            try:
                pickle.dump((True, _inside(pid, function)), pipe)
            except BaseException:  # noqa: BLE001 - the parent raises it
                pickle.dump((False, traceback.format_exc()), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        is_result, value = pickle.load(pipe)
    os.waitpid(child, 0)
    if not is_result:
        raise RuntimeError(value)
    return value


def _inside(pid: int, function: Callable[[], Result]) -> Result:
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
    shared_folder.enter(pid, *NAMESPACES)
    os.fchdir(root)
    os.chroot(".")
    os.environ.update({"HOME": "/home", "TMPDIR": "/tmp"})
    return function()
