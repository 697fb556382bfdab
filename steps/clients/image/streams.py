"""Bytes through a program: what does not fit `process.run`, whose output is text."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from steps.errors import BadTask, Temporary


def through(command: Sequence[str], data: bytes, seconds: float) -> bytes:
    """What a program makes of some bytes. Raises BadTask where it is not installed or does not end well."""
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
    """The input of a program that writes to a file. Raises BadTask where it is not installed or does not end well."""
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
def fed(command: Sequence[str], source: IO[bytes]) -> Iterator[IO[bytes]]:
    """The output of a program that reads a stream; it need not be read to its end. Raises BadTask where it is not installed, or
    does not end well with all that it was given."""
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
                if _at_its_end(child.stdout) and (unread := feeding.exception()):
                    raise unread from None  # what came of it was cut off by that alone
                raise
            if not child.stdout.read(1):
                feeding.result()
                _require(command[0], child.wait(), b"")
        finally:
            child.kill()


def _at_its_end(output: IO[bytes]) -> bool:
    """No more comes of it: the program has ended, and who feeds it is about to, if not yet done."""
    return not output.closed and not output.read(1)


def _feed(source: IO[bytes], pipe: IO[bytes]) -> None:
    """Hand on what is to be read; a program that has ended takes no more."""
    try:
        with contextlib.suppress(BrokenPipeError):
            shutil.copyfileobj(source, pipe)
    finally:
        with contextlib.suppress(BrokenPipeError):  # or else the program waits for more, and who reads it for the program
            pipe.close()


@contextlib.contextmanager
def out_of(command: Sequence[str], errors: Path) -> Iterator[IO[bytes]]:
    """The output of a program; what it says against it goes to the file `errors`. It need not be read to its end."""
    with errors.open("wb") as said:
        try:
            child = subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said)
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


def _require(program: str, code: int, said: bytes) -> None:
    if code != 0:
        words = " ".join(said.decode(errors="replace").split())[-400:]
        raise BadTask(f"{program} ended with {code}: {words or 'it said nothing'}")
