"""Runs a program of a test with bounded output: the beginning of stdout, and the end of what it wrote as a whole.

A test may write without end, so its output is read all the time and mostly dropped; nothing of it comes to a disk.
"""

import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO, Final

from msgspec import Struct

from steps import timeouts
from steps.errors import BadTask

MOST_HEAD: Final = 4 << 20
"""Bytes of stdout that are kept from its beginning: the environment that Lmod prints, or a JSON document."""
MOST_TAIL: Final = 64 << 10
"""Bytes of stdout and stderr that are kept from their end, where programs say why they stopped."""
_PART: Final = 64 << 10


class BoundedEnd(Struct, frozen=True, kw_only=True):
    """End of a program: exit code, seconds, `is_late` if it was killed because its time was over, and its output.

    `out` is the beginning of stdout, `is_cut` if there was more; `tail` is the end of stdout and stderr in the order of reading.
    """

    code: int
    seconds: float
    is_late: bool = False
    out: str = ""
    is_cut: bool = False
    tail: str = ""


class _Kept:
    """Output that is kept while two threads read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.head, self.tail, self.is_cut = b"", b"", False

    def read(self, stream: IO[bytes], is_stdout: bool) -> None:
        """Read a stream to its end."""
        while part := getattr(stream, "read1", stream.read)(_PART):
            with self._lock:
                self.tail = (self.tail + part)[-MOST_TAIL:]
                if is_stdout:
                    room = MOST_HEAD - len(self.head)
                    self.head += part[:room]
                    self.is_cut = self.is_cut or len(part) > room


def run(words: Sequence[str], seconds: float) -> BoundedEnd:
    """Run a program to its end, or kill it after `seconds`. Raises BadTask if it is not installed.

    The program is bubblewrap: its death ends the sandbox's first process, and thereby every other one in there.
    """
    start, kept = time.monotonic(), _Kept()
    try:
        child = subprocess.Popen(list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError as error:
        raise BadTask(f"stacks are tested in {words[0]}, which is not installed", hint="install package bubblewrap") from error
    with child:
        assert child.stdout
        assert child.stderr
        streams = ((child.stdout, True), (child.stderr, False))
        readers = [threading.Thread(target=kept.read, args=pair, daemon=True) for pair in streams]
        for reader in readers:
            reader.start()
        is_late = False
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            is_late = True
        finally:
            child.kill()
        for reader in readers:
            reader.join(timeouts.STACK_TEST_END)
        code = child.wait()
    return BoundedEnd(
        code=code,
        seconds=round(time.monotonic() - start, 3),
        is_late=is_late,
        out=kept.head.decode(errors="replace"),
        is_cut=kept.is_cut,
        tail=kept.tail.decode(errors="replace"),
    )
