"""Runs in the machine: does what it is told on mounts there, one line of JSON an order, each in a process of its own.

Python and our code are loaded once: an emulated processor takes seconds for that.
"""

import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from steps.clients.releases.release_tree import ReleaseTree
from steps.clients.releases.tree_operations import Claimed, Operation, TreeTransport
from steps.contract.canonical import digest_bytes
from steps.errors import StepError
from steps.nodeimage.publishing import image_publication, publication_status
from steps.nodeimage.publishing.image_kind import local_tree
from tests.boot.published import clients
from tests.unit.clients.published.published_trees import ended, forked, image, order, place, silent, transport, wrong

SOURCES = Path("/root/images")
CONTENT = 1000
"""Letters of which a hundred make a part of an image."""
SECONDS = 120.0


class Asked(Struct, frozen=True):
    """A function of `CALLS` to call, and with what."""

    call: str
    words: dict[str, Any] = {}


class Answer(Struct, frozen=True, kw_only=True):
    """Result of a call: the returned value; or an error with its class, failure class, message and hint; or the exit status of a
    process that ended without an answer. `seconds` is the duration."""

    value: Any = None
    error: str = ""
    failure: str = ""
    said: str = ""
    hint: str = ""
    ended: int = 0
    seconds: float = 0.0


class Between:
    """A transport; before the first step that reads like `at`, a line of shell is run, which knows its path as `$AT`."""

    def __init__(self, inner: TreeTransport, root: str, at: str, line: str) -> None:
        self._inner, self._root, self._at, self._line = inner, root, at, line
        self.where = inner.where

    def look(self, name: str, digests: Sequence[str] = ()) -> ReleaseTree:
        return self._inner.look(name, digests)

    def claim(self, folder: str, token: str, holder: bytes, over: int = 0) -> Claimed:
        return self._inner.claim(folder, token, holder, over)

    def perform(self, operations: Iterable[Operation]) -> None:
        for one in operations:
            if self._line and self._at in repr(one):
                line, self._line = self._line, ""
                there = os.path.join(self._root, getattr(one, "path", ""))
                subprocess.run(["sh", "-ec", line], check=True, env={**os.environ, "AT": there}, stdout=subprocess.DEVNULL)
            self._inner.perform([one])

    def close(self) -> None:
        self._inner.close()


def source(text: str) -> Path:
    """An image of some hundred kB, whose parts all begin with this text."""
    return image(SOURCES / text, text.ljust(CONTENT, "."))


def publish(root: str, text: str, kind: str = "local", keep: int = clients.MOST, at: str = "", line: str = "") -> dict[str, Any]:
    """Publish; in the middle, do something else."""
    folder, where = source(text), place(Path(root), keep=keep)
    with transport(kind, Path(root)) as way:
        between = Between(way, root, at, line)
        seen = image_publication.publish_through(between, order(where, folder), silent)
    return {"version": seen.version, "versions": seen.versions, "unchanged": seen.unchanged, "incoming": seen.incoming}


def publish_all(root: str, texts: list[str], log: str, who: str) -> None:
    """Publish one after another, each as soon as nobody else publishes."""
    clients.publish_all(Path(root), [source(text) for text in texts], Path(log), who)


def status_of(root: str, text: str) -> str:
    """Return the publication status of an image that is not built yet."""
    where = place(Path(root))
    return publication_status.query(local_tree(Path(root)), where, "compute", "1" * 64, ()).answer


def rollback(root: str) -> str:
    """Go back to the version before."""
    return image_publication.roll_back(local_tree(Path(root)), "compute", "", "me").to


def booted(root: str) -> str:
    """The version that a node is led to, which must be whole."""
    return clients.booted(Path(root))


def booted_until(roots: list[str], over: str) -> list[list[str]]:
    """Read the version that a node would boot on several mounts until file `over` exists; return each mount's changes in order."""
    seen: list[list[str]] = [[] for _ in roots]
    end = time.monotonic() + SECONDS
    while not os.path.exists(over) and time.monotonic() < end:
        for root, found in zip(roots, seen, strict=True):
            version = clients.booted(Path(root))
            if found[-1:] != [version]:
                found.append(version)
    return seen


def looked(root: str, kind: str = "local") -> dict[str, Any]:
    """Return the current version of a tree, the version that a node would boot, the history and what verification finds wrong."""
    tree = local_tree(Path(root)).look("compute")
    told = [one.to for one in tree.history]
    return {"current": tree.current, "booted": booted(root), "told": told, "wrong": wrong(Path(root), kind=kind)}


def shell(line: str) -> str:
    """Run a line of shell and return its output. Raises OSError if it fails."""
    done = subprocess.run(["sh", "-ec", line], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise OSError(f"{line}: {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def left_open(path: str) -> None:
    """Open a file, and leave it so."""
    OPEN.append(Path(path).open("rb"))  # noqa: SIM115  # until it is read


def read_on() -> str:
    """The digest of all that it has, and close it."""
    with OPEN.pop() as file:
        return digest_bytes(file.read())


OPEN: list[IO[bytes]] = []
HERE: dict[str, Callable[..., Any]] = {one.__name__: one for one in (left_open, read_on)}
"""Functions that run in the agent's own process, not in a child process."""
CALLS: dict[str, Callable[..., Any]] = HERE | {
    one.__name__: one for one in (publish, publish_all, status_of, rollback, booted, booted_until, looked, shell)
}


def answered(act: Callable[[], Any]) -> Answer:
    """Call a function and return its value, or its error, as an answer."""
    began = time.monotonic()
    try:
        answer = Answer(value=act())
    except StepError as error:
        kind = type(error)
        answer = Answer(error=kind.__name__, failure=kind.failure_class, said=str(error), hint=error.hint)
    except Exception as error:  # noqa: BLE001  # told to whoever asked
        answer = Answer(error=type(error).__name__, said=traceback.format_exc())
    return msgspec.structs.replace(answer, seconds=round(time.monotonic() - began, 2))


def apart(act: Callable[[], Any]) -> Answer:
    """Call a function in a child process, which may be killed, and return the answer."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "answer"
        code = ended(forked(lambda: said.write_bytes(msgspec.json.encode(answered(act)))))
        return msgspec.json.decode(said.read_bytes(), type=Answer) if said.exists() else Answer(ended=code)


def main() -> None:
    """Answer line by line, until the input ends."""
    for line in sys.stdin.buffer:
        asked = msgspec.json.decode(line, type=Asked)

        def act(asked: Asked = asked) -> Any:
            return CALLS[asked.call](**asked.words)

        answer = answered(act) if asked.call in HERE else apart(act)
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
