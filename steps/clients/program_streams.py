"""External programs that read and write byte streams; `process.run` has text only."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from steps.errors import BadTask, Temporary


def through(command: Sequence[str], data: bytes, seconds: float) -> bytes:
    """Return the bytes that a program writes when it reads `data`.

    Raises BadTask if the program is not installed or fails, Temporary after `seconds`.
    """
    try:
        done = subprocess.run(list(command), input=data, capture_output=True, timeout=seconds, check=False)
    except FileNotFoundError as error:
        raise _missing(command[0]) from error
    except subprocess.TimeoutExpired as error:
        raise Temporary(f"{command[0]} took longer than {seconds:.0f} s") from error
    _require(command[0], done.returncode, done.stderr)
    return done.stdout


@contextlib.contextmanager
def into(command: Sequence[str], file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the input stream of a program whose output goes to a file. Raises BadTask if the program is not installed or fails."""
    try:
        child = subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=file, stderr=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise _missing(command[0]) from error
    with child:
        if child.stdin is None:
            raise BadTask(f"no pipe to {command[0]}")
        yield child.stdin
        child.stdin.close()
        _require(command[0], child.wait(), b"")


@contextlib.contextmanager
def feed(command: Sequence[str], source: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the output stream of a program that reads from `source`; the output need not be read to its end.

    Raises BadTask if the program is not installed, or fails although it got all of its input.
    """
    try:
        child = subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise _missing(command[0]) from error
    with child, ThreadPoolExecutor(max_workers=1) as beside:
        if child.stdin is None or child.stdout is None:
            raise BadTask(f"no pipe to {command[0]}")
        try:
            feeding = beside.submit(_feed, source, child.stdin)
            try:
                yield child.stdout
            except Exception:
                # without more output the program has ended, and the thread that feeds it has ended or is about to
                is_at_end = not child.stdout.closed and not child.stdout.read(1)
                if is_at_end and (unread := feeding.exception()):
                    raise unread from None  # what came of it was cut off by that alone
                raise
            if not child.stdout.read(1):
                feeding.result()
                _require(command[0], child.wait(), b"")
        finally:
            child.kill()


def _feed(source: IO[bytes], pipe: IO[bytes]) -> None:
    """Copy the stream to the program's input and close it; a program that has ended is no error."""
    try:
        with contextlib.suppress(BrokenPipeError):
            shutil.copyfileobj(source, pipe)
    finally:
        with contextlib.suppress(BrokenPipeError):  # or else the program waits for more, and who reads it for the program
            pipe.close()


@contextlib.contextmanager
def open_output(command: Sequence[str], errors: Path) -> Iterator[IO[bytes]]:
    """Yield the output stream of a program, which need not be read to its end; its stderr goes to the file `errors`.

    Raises BadTask if the program is not installed, or if it fails and its output was read to the end.
    """
    with errors.open("wb") as stderr:
        try:
            child = subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
        except FileNotFoundError as error:
            raise _missing(command[0]) from error
    try:
        if child.stdout is None:
            raise BadTask(f"no pipe from {command[0]}")
        with child.stdout:
            yield child.stdout
            if not child.stdout.read(1):
                _require(command[0], child.wait(), errors.read_bytes())
    finally:
        child.kill()
        child.wait()


def _missing(program: str) -> BadTask:
    return BadTask(f"{program} is not installed", hint=f"install the package that brings {program}")


def _require(program: str, code: int, output: bytes) -> None:
    if code != 0:
        words = " ".join(output.decode(errors="replace").split())[-400:]
        raise BadTask(f"{program} ended with {code}: {words or 'it said nothing'}")
