"""Transport to a release tree behind a shell session: operations go in as lines and bytes, answers come out.

The program at the other end (`session.sh`) is constant: names travel as data on its input, never as parts of a command. It needs
sh, GNU coreutils and sha256sum, and ends when its input ends.
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
from steps.clients.releases import tree_operations
from steps.clients.releases.release_tree import ALL, MOST_NODES, MOST_REPORT, ReleaseTree, TreeEntry, TreeLayout
from steps.clients.releases.tree_operations import CHUNK, CheckFile, Claimed, Operation, Put, failure
from steps.contract import plain_text
from steps.errors import BadTask, Garbled, Unreachable

PROGRAM = Path(__file__).with_name("session.sh")
"""Path of the shell program that runs at the other end."""
_WORDS: dict[type, str] = {
    tree_operations.MakeFolder: "folder",
    CheckFile: "check",
    tree_operations.Sync: "sync",
    tree_operations.Move: "move",
    tree_operations.Replace: "replace",
    tree_operations.Link: "link",
    tree_operations.Remove: "remove",
    tree_operations.ConfirmLock: "held",
    tree_operations.ReleaseLock: "release",
}


class ShellTransport:
    """A `TreeTransport` over a command that runs `PROGRAM` at the other end, or takes it as its first input.

    `answer` is the time in seconds that an answer may take, beside the time that the bytes to copy or read need.
    """

    def __init__(
        self,
        command: Sequence[str],
        root: str,
        where: str,
        answer: float = timeouts.PUBLISH_ANSWER,
        *,
        program: bytes = b"",
        layout: TreeLayout = TreeLayout(),
    ) -> None:
        self.where, self._layout = where, layout
        self._seconds, self._until = answer, 0.0
        # a file: nobody reads it while the session runs, and a full pipe would block the other end
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

    def look(self, product: str, digests: Sequence[str] = ()) -> ReleaseTree:
        """Read the folder of a product as it is now: names, small files, and the last reports of nodes.

        For the versions named in `digests` (`release_tree.ALL`: every version) the digest of each file is computed.
        """
        # Reading takes time by the size of the files, so a first look without digests finds that size.
        size = _size(self._look(product, (), 0), digests) if digests else 0
        return self._look(product, digests, size)

    def _look(self, product: str, digests: Sequence[str], size: int) -> ReleaseTree:
        """Read the folder of a product as `look` does; for the time limit, `size` bytes are read at the other end."""
        tree = ReleaseTree(root="", product=product, layout=self._layout)
        # No word of a line may be empty, so lists begin with their separator.
        words = (f",{','.join(digests)},", f":{self._layout.shared}", ":" + "".join(f"{end}:" for end in self._layout.read))
        with self._within(size / timeouts.PUBLISH_SLOWEST):
            self._send(_line("look", product, *words))
            while (token := self._token()) != "z":
                # each part of the answer extends the time limit, since the number of files is not known before
                self._until = max(self._until, time.monotonic() + self._seconds)
                self._see(tree, token)
        return tree

    def claim(self, folder: str, token: str, holder: bytes, over: int = 0) -> Claimed:
        """Try to take the lock of a folder for the process that `holder` describes; return at once with the outcome.

        `over` is the number of a held lock that may be taken over, because its holder is known to be gone.
        """
        with self._within():
            self._send(_line("claim", folder, token, str(over), holder.decode()))
            word, _, rest = self._answer().partition(" ")
        if word == "held":
            number, age, file = rest.split(" ", 2)
            return Claimed(had=False, number=int(number), holder=file.encode(), age=float(age))
        return Claimed(had=word == "claimed", free=word == "free", why=rest)

    def perform(self, operations: Iterable[Operation]) -> None:
        """Perform operations in order, in one round trip; stop at the first that fails and raise its StepError."""
        pending = tuple(operations)
        size = sum(operation.size for operation in pending if isinstance(operation, Put | CheckFile))
        with self._within(size / timeouts.PUBLISH_SLOWEST + len(pending) * timeouts.PUBLISH_STEP):
            for operation in pending:
                self._ask(operation)
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

    def _ask(self, operation: Operation) -> None:
        if not isinstance(operation, Put):
            values = (str(getattr(operation, name)) for name in operation.__struct_fields__)
            self._send(_line(_WORDS[type(operation)], *values))
            return
        self._send(_line("put", operation.path, str(operation.size)))
        if isinstance(operation.source, bytes):
            self._send(operation.source)
            return
        with operation.source.open("rb") as stream:
            sent = 0
            while part := stream.read(min(CHUNK, operation.size - sent)):
                self._send(part)
                sent += len(part)
        if sent != operation.size:
            raise failure("short", operation.source.name, str(operation.source.parent))

    def _see(self, tree: ReleaseTree, token: str) -> None:
        """Add one part of the answer to `look` to the tree; session.sh says what each letter means."""
        kind, _, rest = token.partition(" ")
        match kind:
            case "e":
                mode, size, modified, names, path = rest.split(" ", 4)
                bits = int(mode, 16)
                target = self._token() if bits & 0o170000 == 0o120000 else ""
                tree.entries[path] = TreeEntry(bits, int(size), int(modified), int(names), target)
            case "c":
                count, path = rest.split(" ", 1)
                tree.contents[path] = self._bytes(int(count))
            case "d":
                digest, path = rest.split(" ", 1)
                tree.digests[path] = f"sha256:{digest}"
            case "i":
                tree.products = (*tree.products, rest)
            case "r":
                tree.root = rest
            case "w":
                tree.unwritable = tuple(sorted({*tree.unwritable, rest}))
            case "n":
                count, names = rest.split(" ", 1)
                lines = self._bytes(int(count)).split(b"\n")
                files = names.split("/")[1:]
                reports = zip(files, [*lines, *[b""] * len(files)], strict=False)
                room = max(0, MOST_NODES - len(tree.nodes))
                tree.nodes |= {name: line[:MOST_REPORT] for name, line in itertools.islice(reports, room)}
            case "t":
                mode, modified, name = rest.split(" ", 2)
                if not stat.S_ISREG(int(mode, 16)):
                    tree.nodes.pop(name, None)
                elif name in tree.nodes:
                    tree.reported_at[name] = int(modified)
            case _:
                raise self._broken(plain_text.line(token[:200]))

    def _finished(self) -> None:
        if (answer := self._answer()) != "done":
            raise self._broken(plain_text.line(answer[:200]))

    def _answer(self) -> str:
        line = self._out.readline(1 << 16).decode(errors="replace")
        if not line.endswith("\n"):
            raise self._broken(plain_text.line(line[:200]))
        self._failed(line[:-1])
        return line[:-1]

    def _token(self) -> str:
        """Return the next part of an answer, up to a zero byte, because file names may have line ends in them."""
        token = bytearray()
        while (sign := self._out.read(1)) not in (b"\0", b""):
            token += sign
            if sign == b"\n" and token.startswith(b"error "):
                self._failed(token[:-1].decode(errors="replace"))
        if not sign:
            raise self._broken(plain_text.line(token.decode(errors="replace")[:200]))
        return token.decode(errors="surrogateescape")

    def _failed(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "error":
            code, _, what = rest.partition(" ")
            raise failure(code, plain_text.line(what.strip()), self.where)

    def _bytes(self, count: int) -> bytes:
        data = self._out.read(count)
        if len(data) != count:
            raise self._broken("")
        return data

    def _send(self, data: bytes) -> None:
        try:
            self._in.write(data)
            self._in.flush()
        except (BrokenPipeError, ConnectionResetError) as error:
            # the other end may have reported an error before it ended
            for line in self._out.read().decode(errors="replace").splitlines():
                self._failed(line)
            raise self._broken("") from error

    def _broken(self, answer: str) -> Exception:
        """Return the error for a session that ended, hangs, or gave an `answer` that session.sh never gives."""
        if self._overdue:
            return Unreachable(f"{self.where}: no answer in time", hint="see whether its disk or the network hangs")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeouts.PUBLISH_CLOSE)
        self._errors.seek(0)
        lines = self._errors.read()[-2000:].decode(errors="replace").strip().splitlines()
        why = plain_text.line(lines[-1]) if lines else answer
        if answer and self._process.returncode is None:
            return Garbled(f"{self.where}: said {answer!r}, which is no answer", hint="see what its login shell prints by itself")
        hint = "see that it runs, its key is in known_hosts, and the user may log in"
        return Unreachable(f"{self.where}: the session ended: {why or 'without a word'}", hint=hint)

    @contextmanager
    def _within(self, more: float = 0.0) -> Iterator[None]:
        """End the session if the block takes too long: its reader then sees the end of the output. `more`: additional seconds."""
        self._until, over = time.monotonic() + self._seconds + more, threading.Event()

        def watch() -> None:
            while (left := self._until - time.monotonic()) > 0:
                if over.wait(left):
                    return
            self._overdue = True
            self._process.kill()

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            over.set()


def _size(tree: ReleaseTree, digests: Sequence[str]) -> int:
    """Return the number of bytes in the versions whose files are to be read whole."""
    versions = tree.versions if ALL in digests else digests
    return sum(entry.size for name in versions for entry in tree.below(tree.version_path(name)).values())


def _line(*words: str) -> bytes:
    """Return a line of words between tabs. Raises BadTask for a word that is empty or has a tab or line end in it."""
    if odd := [word for word in words if not word or not word.isprintable()]:
        raise BadTask(f"{odd[0]!r} cannot be sent as a name: printable signs, at least one")
    return ("\t".join(words) + "\n").encode()
