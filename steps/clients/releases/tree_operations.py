"""Operations that a transport performs on a release tree, and the errors of failed ones. Paths are relative to the tree's root."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from steps.clients.releases.release_tree import ReleaseTree
from steps.errors import BadTask, Refused, StepError, StoreBusy, Temporary

CHUNK = 16 << 20
"""Number of bytes after which a long copy renews the lock."""


class BytesDiffer(Temporary):
    """Raised if a written file has other bytes than were sent."""


class MakeFolder(Struct, frozen=True):
    """Operation that makes a folder, and the folders above it."""

    path: str


class Put(Struct, frozen=True):
    """Operation that writes a new file of `size` bytes and flushes it to disk; `source`: its bytes, or a file here."""

    path: str
    source: bytes | Path
    size: int


class CheckFile(Struct, frozen=True):
    """Operation that reads a file again and fails unless it has this size (bytes) and digest (`sha256:…`)."""

    path: str
    size: int
    digest: str


class Sync(Struct, frozen=True):
    """Operation that flushes the names in a folder to disk."""

    path: str


class Move(Struct, frozen=True):
    """Operation that renames a file, folder or link to a name that is still free."""

    path: str
    to: str


class Replace(Struct, frozen=True):
    """Operation that renames a file or link and replaces what has that name."""

    path: str
    to: str


class Link(Struct, frozen=True):
    """Operation that makes a symbolic link."""

    path: str
    target: str


class Remove(Struct, frozen=True):
    """Operation that removes a file, or a folder with everything in it. A missing one is no error."""

    path: str


class ConfirmLock(Struct, frozen=True):
    """Operation that fails unless the lock of a folder still has this token, and renews the lock."""

    folder: str
    token: str


class ReleaseLock(Struct, frozen=True):
    """Operation that gives the lock of a folder back, if it still has this token."""

    folder: str
    token: str


Operation = MakeFolder | Put | CheckFile | Sync | Move | Replace | Link | Remove | ConfirmLock | ReleaseLock


class Claimed(Struct, frozen=True, kw_only=True):
    """Outcome of asking for a lock.

    The lock was `had`; or it was `free`, but another process came first (`why`: the system's error); or lock `number` is held by
    `holder` (bytes of the lock file), who renewed it `age` seconds ago.
    """

    had: bool
    number: int = 0
    holder: bytes = b""
    age: float = 0.0
    free: bool = False
    why: str = ""


class TreeTransport(Protocol):
    """Interface to read and change a release tree, on this machine or another one. Methods raise StepErrors that name the tree."""

    where: str

    def look(self, product: str, digests: Sequence[str] = ()) -> ReleaseTree:
        """Read the folder of a product as it is now: names, small files, and the last reports of nodes.

        For the versions named in `digests` (`release_tree.ALL`: every version) the digest of each file is computed.
        """
        ...

    def claim(self, folder: str, token: str, holder: bytes, over: int = 0) -> Claimed:
        """Try to take the lock of a folder for the process that `holder` describes; return at once with the outcome.

        `over` is the number of a held lock that may be taken over, because its holder is known to be gone.
        """
        ...

    def perform(self, operations: Iterable[Operation]) -> None:
        """Perform operations in order; stop at the first that fails and raise its StepError."""
        ...

    def close(self) -> None:
        """End the connection, if there is one."""
        ...


def failure(code: str, what: str, where: str) -> StepError:
    """Return the error for a failed operation. `code` is one of the codes that both transports use; `where` names the tree."""
    match code:
        case "digest":
            hint = "the disk or the way to it changed bytes; publish again, and look at the disk where it stays so"
            return BytesDiffer(f"{where}: {what} has other bytes than were written", hint=hint)
        case "short":
            return Temporary(f"{where}: {what} came in only in part", hint="publish again: nothing of this attempt is in use")
        case "exists":
            return Refused(
                f"{where}: {what} is there already, and nothing published is ever overwritten", hint="see who put it there"
            )
        case "lost":
            hint = "publish again: nothing of this attempt is in use"
            return Temporary(f"{where}: somebody else took the lock meanwhile", hint=hint)
        case "device":
            hint = "all folders of the tree must lie in one file system, so that a rename is one step"
            return BadTask(f"{where}: {what} is on another file system than incoming", hint=hint)
        case "root":
            return BadTask(f"{where}: there is no such folder that can be entered", hint="make it, or mount what it should be")
        case "open":
            hint = "publish again when nobody on the machine that writes the tree reads it any more"
            return StoreBusy(f"{where}: {what} has a file that is still open, as a web server's", hint=hint)
        case "right":
            hint = "give this user the folders of the tree, or publish as the user that has them"
            return Refused(f"{where}: this user lacks a right: {what}", hint=hint)
        case "room":
            return StoreBusy(f"{where}: {what}", hint="free space or make the tree writable")
        case "disk":
            return StoreBusy(f"{where}: {what}", hint="see whether its disk is broken, or its mount went away")
    return StepError(f"{where}: {what}")
