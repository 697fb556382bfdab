"""Functions that tests have called in a namespace."""

import os
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from steps.errors import Refused


class Word(Struct):
    """Argument of the called functions: one text."""

    text: str = ""


class Seen(Struct):
    """Observations inside a namespace: names in the root, number of processes, user ID and host name."""

    names: list[str]
    processes: int
    user: int
    host: str


def see(root: Path, word: Word) -> Seen:
    """Look around."""
    print(f"said {word.text}")
    processes = sum(name.isdigit() for name in os.listdir("/proc"))
    return Seen(names=sorted(os.listdir(root)), processes=processes, user=os.getuid(), host=os.uname().nodename)


def write(root: Path, word: Word) -> Seen:
    """Change the root."""
    (root / "new").write_text(word.text)
    (root / "low").unlink()
    return see(root, word)


def make(root: Path, word: Word) -> list[str]:
    """Make a folder with a file in it; rights, group and extended attributes of the root and of both."""
    made = root / word.text
    made.mkdir()
    (made / "file").write_text("x")
    places = (root, made, made / "file")
    return [f"{one.stat().st_mode & 0o7777:o} {one.stat().st_gid} {os.listxattr(one)}" for one in places]


def refuse(_: Path, word: Word) -> None:
    """End with an error of ours."""
    raise Refused(f"no {word.text}", hint="ask again")


def fail(_: Path, word: Word) -> None:
    """End with one that nobody foresaw."""
    raise ValueError(word.text)


def die(_: Path, word: Word) -> None:
    """End without a word."""
    sys.stderr.write(f"last words: {word.text}\n")
    sys.stderr.flush()
    os._exit(7)


def hang(root: Path, word: Word) -> None:
    """Never end; leave a child of a child running, and say when."""
    with subprocess.Popen(["sh", "-c", f"sleep {word.text} & echo hangs; wait"]):
        pass
