"""Functions that tests have called in a namespace."""

import os
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from steps.errors import Refused


class Word(Struct):
    """What a function is told."""

    text: str = ""


class Seen(Struct):
    """What it saw."""

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
