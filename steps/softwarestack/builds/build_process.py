"""Runs a long program of a build with its output in a file, and ends it with all its descendants when its time is over."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from steps import timeouts
from steps.errors import BadTask


class ProcessEnd(Struct, frozen=True, kw_only=True):
    """End of a program: its exit code, the seconds that it ran, and `is_late` if it was killed because its time was over."""

    code: int
    seconds: float
    is_late: bool = False


def run(words: Sequence[str], output: Path, seconds: float) -> ProcessEnd:
    """Run a program to its end, or kill it after `seconds`; stdout and stderr go to the file `output`.

    The program is bubblewrap: its death ends the sandbox's first process, and thereby every other one in there. It also dies with
    the thread that calls this function. Raises BadTask if the program is not installed.
    """
    start = time.monotonic()
    with output.open("wb") as file:
        try:
            child = subprocess.Popen(list(words), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
        except FileNotFoundError as error:
            raise BadTask(f"packages are built in {words[0]}, which is not installed", hint="install package bubblewrap") from error
        try:
            code, is_late = child.wait(seconds), False
        except subprocess.TimeoutExpired:
            child.kill()
            code, is_late = child.wait(timeouts.BUILD_END), True
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    return ProcessEnd(code=code, seconds=time.monotonic() - start, is_late=is_late)
