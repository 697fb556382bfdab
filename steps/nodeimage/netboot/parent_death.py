"""Wrapper that makes the kernel kill a program when its parent ends: `python parent_death.py PARENT PROGRAM ARGUMENT…`.

A parent that was killed before the kernel was told has gone already; then nothing is started. Only the standard library is used.
"""

import ctypes
import os
import signal
import sys

_SET_PDEATHSIG = 1


def main(words: list[str]) -> None:
    """Ask the kernel to kill this process with its parent, whose process id comes first, and become the program that follows."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() == int(words[0]):
        os.execvp(words[1], words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
