"""A tree behind one shell session: operations go in as lines and bytes, answers come out; the program that runs there is constant.

Names travel as data on its input, never as parts of a command. It needs sh, GNU coreutils and sha256sum, and ends with its input.
"""

import itertools
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from steps import timeouts
from steps.clients.published import operations as do
from steps.clients.published.operations import CHUNK, Claimed, Operation, failure
from steps.clients.published.tree import ALL, MOST_NODES, MOST_REPORT, Entry, Tree
from steps.contract import plain
from steps.contract.image import published
from steps.errors import BadTask, Garbled, Unreachable

PROGRAM = Path(__file__).with_name("session.sh")
"""What runs there."""
_WORDS: dict[type, str] = {
    do.Folder: "folder",
    do.Check: "check",
    do.Sync: "sync",
    do.Move: "move",
    do.Replace: "replace",
    do.Link: "link",
    do.Remove: "remove",
    do.Held: "held",
    do.Release: "release",
}


class Session:
    """Implements `operations.Transport` over a command that runs `PROGRAM` at the other end, or takes it as its first input."""

    def __init__(
        self, command: Sequence[str], root: str, where: str, answer: float = timeouts.PUBLISH_ANSWER, *, program: bytes = b""
    ) -> None:
        self.where = where
        self._seconds, self._until = answer, 0.0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the session
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)
        except FileNotFoundError as error:
            raise BadTask(f"{command[0]} is not installed", hint=f"install the package that brings {command[0]}") from error
        assert self._process.stdin
        assert self._process.stdout
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._overdue = False
        try:
            with self._within():
                self._send(program + _line(root))
                self._finished()
        except BaseException:
            self.close()
            raise

    def look(self, image: str, digests: Sequence[str] = ()) -> Tree:
        """What is there."""
        size = _size(self._look(image, (), 0), digests) if digests else 0
        return self._look(image, digests, size)

    def _look(self, image: str, digests: Sequence[str], size: int) -> Tree:
        """The same; so many bytes are read for it at the other end."""
        tree = Tree(root="", image=image)
        with self._within(size / timeouts.PUBLISH_SLOWEST):
            self._send(_line("look", image, f",{','.join(digests)},"))
            while (token := self._token()) != "z":
                self._until = max(self._until, time.monotonic() + self._seconds)
                self._see(tree, token)
        return tree

    def claim(self, folder: str, token: str, holder: bytes, over: int = 0) -> Claimed:
        """Try to have the lock of a folder."""
        with self._within():
            self._send(_line("claim", folder, token, str(over), holder.decode()))
            word, _, rest = self._answer().partition(" ")
        if word == "held":
            number, age, said = rest.split(" ", 2)
            return Claimed(had=False, number=int(number), holder=said.encode(), age=float(age))
        return Claimed(had=word == "claimed", free=word == "free", why=rest)

    def perform(self, operations: Iterable[Operation]) -> None:
        """Do these in order, in one round trip."""
        todo = tuple(operations)
        size = sum(one.size for one in todo if isinstance(one, do.Put | do.Check))
        with self._within(size / timeouts.PUBLISH_SLOWEST + len(todo) * timeouts.PUBLISH_STEP):
            for one in todo:
                self._ask(one)
            self._send(_line("end"))
            self._finished()

    def close(self) -> None:
        """End the session: the other end sees the end of its input."""
        with suppress(OSError):
            self._in.close()
        try:
            self._process.wait(timeouts.PUBLISH_CLOSE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()
        self._errors.close()

    def _ask(self, one: Operation) -> None:
        if not isinstance(one, do.Put):
            self._send(_line(_WORDS[type(one)], *(str(getattr(one, name)) for name in one.__struct_fields__)))
            return
        self._send(_line("put", one.path, str(one.size)))
        if isinstance(one.source, bytes):
            self._send(one.source)
            return
        with one.source.open("rb") as stream:
            sent = 0
            while part := stream.read(min(CHUNK, one.size - sent)):
                self._send(part)
                sent += len(part)
        if sent != one.size:
            raise failure("short", one.source.name, str(one.source.parent))

    def _see(self, tree: Tree, token: str) -> None:
        kind, _, rest = token.partition(" ")
        match kind:
            case "e":
                mode, size, modified, names, path = rest.split(" ", 4)
                bits = int(mode, 16)
                target = self._token() if bits & 0o170000 == 0o120000 else ""
                tree.entries[path] = Entry(bits, int(size), int(modified), int(names), target)
            case "c":
                count, path = rest.split(" ", 1)
                tree.contents[path] = self._bytes(int(count))
            case "d":
                digest, path = rest.split(" ", 1)
                tree.digests[path] = f"sha256:{digest}"
            case "i":
                tree.images = (*tree.images, rest)
            case "r":
                tree.root = rest
            case "w":
                tree.unwritable = tuple(sorted({*tree.unwritable, rest}))
            case "n":
                count, names = rest.split(" ", 1)
                lines = self._bytes(int(count)).split(b"\n")
                found = names.split("/")[1:]
                told = zip(found, [*lines, *[b""] * len(found)], strict=False)
                room = max(0, MOST_NODES - len(tree.nodes))
                tree.nodes |= {name: line[:MOST_REPORT] for name, line in itertools.islice(told, room)}
            case "t":
                mode, modified, name = rest.split(" ", 2)
                if not stat.S_ISREG(int(mode, 16)):
                    tree.nodes.pop(name, None)
                elif name in tree.nodes:
                    tree.told[name] = int(modified)
            case _:
                raise self._broken(plain.line(token[:200]))

    def _finished(self) -> None:
        if (said := self._answer()) != "done":
            raise self._broken(plain.line(said[:200]))

    def _answer(self) -> str:
        line = self._out.readline(1 << 16).decode(errors="replace")
        if not line.endswith("\n"):
            raise self._broken(plain.line(line[:200]))
        self._failed(line[:-1])
        return line[:-1]

    def _token(self) -> str:
        found = bytearray()
        while (sign := self._out.read(1)) not in (b"\0", b""):
            found += sign
            if sign == b"\n" and found.startswith(b"error "):
                self._failed(found[:-1].decode(errors="replace"))
        if not sign:
            raise self._broken(plain.line(found.decode(errors="replace")[:200]))
        return found.decode(errors="surrogateescape")

    def _failed(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "error":
            code, _, what = rest.partition(" ")
            raise failure(code, plain.line(what.strip()), self.where)

    def _bytes(self, count: int) -> bytes:
        found = self._out.read(count)
        if len(found) != count:
            raise self._broken("")
        return found

    def _send(self, data: bytes) -> None:
        try:
            self._in.write(data)
            self._in.flush()
        except (BrokenPipeError, ConnectionResetError) as error:
            self._answer_left()
            raise self._broken("") from error

    def _answer_left(self) -> None:
        """What the other end said before it ended is the reason."""
        for line in self._out.read().decode(errors="replace").splitlines():
            self._failed(line)

    def _broken(self, said: str) -> Exception:
        if self._overdue:
            return Unreachable(f"{self.where}: no answer in time", hint="see whether its disk or the network hangs")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeouts.PUBLISH_CLOSE)
        self._errors.seek(0)
        lines = self._errors.read()[-2000:].decode(errors="replace").strip().splitlines()
        why = plain.line(lines[-1]) if lines else said
        if said and self._process.returncode is None:
            return Garbled(f"{self.where}: said {said!r}, which is no answer", hint="see what its login shell prints by itself")
        hint = "see that it runs, its key is in known_hosts, and the user may log in"
        return Unreachable(f"{self.where}: the session ended: {why or 'without a word'}", hint=hint)

    @contextmanager
    def _within(self, more: float = 0.0) -> Iterator[None]:
        """Ends the session where an answer takes too long; whoever reads it then sees its end."""
        self._until, over = time.monotonic() + self._seconds + more, threading.Event()

        def watch() -> None:
            while (left := self._until - time.monotonic()) > 0:
                if over.wait(left):
                    return
            self._stop()

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _stop(self) -> None:
        self._overdue = True
        self._process.kill()


def _size(tree: Tree, digests: Sequence[str]) -> int:
    """Bytes of the versions whose files are to be read whole."""
    wanted = tree.versions if ALL in digests else digests
    return sum(entry.size for name in wanted for entry in tree.below(tree.path(published.VERSIONS, name)).values())


def _line(*words: str) -> bytes:
    """Words between tabs: none may have a tab, a line end or nothing in it."""
    if odd := [word for word in words if not word or not word.isprintable()]:
        raise BadTask(f"{odd[0]!r} cannot be sent as a name: printable signs, at least one")
    return ("\t".join(words) + "\n").encode()
