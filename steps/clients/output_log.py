"""Log of a step: its output without secrets, written to stderr as it happens and kept for the store.

While a log holds the process, output of the process and its children never reaches the engine unfiltered. Python's streams go
through the log, and the descriptors below them lead into memory until the log has read it. Only a process that is killed loses the
unread part.
"""

import faulthandler
import io
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TextIO

from steps.clients.redact import Redactor
from steps.contract import paths
from steps.errors import StepError

HEAD, TAIL = 64_000, 192_000
"""Limits of a log in characters: the beginning says what was to be done, the end how it went."""
LONGEST = 64_000
"""Limit of characters without a line end. Longer output is no text, and cannot be searched for secrets piece by piece."""


def folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of a step's secrets that its environment names: those given to it, and those that its run made."""
    secrets, store = environ.get(paths.variable("secrets"), ""), environ.get(paths.variable("store"), "")
    of_run = [Path(store) / f"runs/{environ[paths.RUN]}/secrets"] if store and environ.get(paths.RUN) else []
    return (*((Path(secrets),) if secrets else ()), *of_run)


class Log:
    """A log that writes text to `out` without secrets, and keeps it up to a limit."""

    def __init__(self, redactor: Redactor, out: TextIO | None = None) -> None:
        self.redactor = redactor
        self.at_end: Callable[[], object] | None = None
        self._out = out
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._sizes = [0, 0]
        self._lost = 0

    def say(self, text: str) -> None:
        """Write a line about the current work, beginning with the time (UTC)."""
        self.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")

    def write(self, text: str, out: TextIO | None = None) -> None:
        """Write whole lines to the log. A secret that spans several lines is found only if they are given in one piece."""
        clean = self.redactor.text(text)
        target = out or self._out or sys.stderr  # stderr is looked up now, because it may have been replaced
        target.write(clean)
        target.flush()
        self._remember(clean)

    def text(self) -> str:
        """Return all text so far, with the middle left out if it is too long."""
        gap = [f"[... {self._lost} characters left out ...]\n"] if self._lost else []
        # again: a secret may have become known only after its line was written
        return self.redactor.text("".join([*self._head, *gap, *self._tail]))

    def _remember(self, text: str) -> None:
        if not self._tail and self._sizes[0] + len(text) <= HEAD:
            self._head.append(text)
            self._sizes[0] += len(text)
            return
        self._lost += max(0, len(text) - TAIL)
        self._tail.append(text[-TAIL:])
        self._sizes[1] += len(self._tail[-1])
        while self._sizes[1] > TAIL:
            gone = len(self._tail.popleft())
            self._sizes[1] -= gone
            self._lost += gone


class _Stream(io.TextIOBase):
    """Python's stdout or stderr while a log holds the process. It passes on whole lines."""

    def __init__(self, log: Log, out: TextIO, number: int) -> None:
        self._log = log
        self._real = out
        self._number = number
        self._rest = ""

    def write(self, text: str) -> int:
        whole, end, self._rest = (self._rest + text).rpartition("\n")
        if end:
            self._log.write(whole + end, self._real)
        if len(self._rest) > LONGEST:
            self._log.write(f"[{len(self._rest)} characters without a line end left out]\n", self._real)
            self._rest = ""
        return len(text)

    def fileno(self) -> int:
        """Return the file descriptor that children inherit; it leads into memory."""
        return self._number

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only here: nobody changes it
        """Return `utf-8`, the encoding that a text stream of Python must name."""
        return "utf-8"

    def finish(self) -> None:
        """Write the rest of the output as a last line, if it did not end with a line end."""
        if self._rest:
            self.write("\n")


class RedirectedOutput:
    """A context manager that redirects stdout and stderr of the process and its children into a log, which it returns.

    At the end the log's `at_end` is called while output is still possible.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._redactor = Redactor(folders(environ))
        self._memory = os.memfd_create("printed")

    def __enter__(self) -> Log:
        self._python = sys.stdout, sys.stderr
        for stream in self._python:
            stream.flush()
        self._saved = [os.dup(number) for number in (1, 2)]
        self._real = [os.fdopen(os.dup(number), "w", encoding="utf-8", errors="backslashreplace") for number in (1, 2)]
        for number in (1, 2):
            # children write to the descriptors directly; their output is redacted before it is shown
            os.dup2(self._memory, number)
        faulthandler.enable(self._real[1])  # a crash of the interpreter then prints a traceback without values
        self._log = Log(self._redactor, self._real[1])
        self._streams = [_Stream(self._log, real, number) for number, real in zip((1, 2), self._real, strict=True)]
        sys.stdout, sys.stderr = self._streams
        return self._log

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for stream in self._streams:
            stream.finish()
        self._look()
        try:
            if self._log.at_end is not None:
                self._log.at_end()
        except StepError as unkept:
            self._log.write(f"this log was not kept: {unkept}\n")
        faulthandler.disable()
        sys.stdout, sys.stderr = self._python
        for number, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, number)
            os.close(saved)
        for real in self._real:
            real.close()
        os.close(self._memory)

    def _look(self) -> None:
        """Log the output that did not go through Python's streams."""
        size = os.fstat(self._memory).st_size
        printed = os.pread(self._memory, TAIL, max(0, size - TAIL)).decode(errors="replace")
        if size > TAIL:  # the first line is cut and may hold half a secret, which the redactor does not recognise
            printed = f"[the beginning of {size} bytes left out]\n{printed.partition(chr(10))[2]}"
        if printed:
            self._log.write(printed if printed.endswith("\n") else f"{printed}\n")
