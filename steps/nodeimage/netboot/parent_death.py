"""Program that becomes another one, which the kernel kills when its parent ends: `python parent_death.py PARENT PROGRAM ARGUMENT…`.

A parent that was killed before the kernel was told has gone already: then nothing is started. Uses Python's standard library alone.
"""

import ctypes
import os
import signal
import sys

_SET_PDEATHSIG = 1


def main(words: list[str]) -> None:
    """Bind this process to its parent, whose number comes first, and become the program."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() == int(words[0]):
        os.execvp(words[1], words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
