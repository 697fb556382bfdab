"""Streams of the process: closed ones are replaced, and a reader that is gone is no error."""

import io
import locale
import os
import sys
from typing import IO


def begin() -> None:
    r"""Open /dev/null in place of streams that were closed before the command began, so that no opened file takes their number.

    Characters that the output's encoding lacks are written as `\\u2026`, as Python does on stderr.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115  # open as long as the process
    for stream in (sys.stdout, sys.stderr):
        # the process is in UTF-8 mode for its files alone; a terminal has the encoding of the locale
        if isinstance(stream, io.TextIOWrapper) and "utf8" in sys._xoptions and stream.isatty():
            stream.reconfigure(encoding=locale.getencoding(), errors="backslashreplace")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")


def finish() -> None:
    """Flush stdout; stop silently once the reader of a pipe is gone."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)


def drop(stream: IO[str]) -> None:
    """Send further output of a stream to /dev/null, because its reader is gone; the command goes on to its own exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
