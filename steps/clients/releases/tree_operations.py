"""Operations that a transport performs on a release tree, and the errors of failed ones. Paths are relative to the tree's root."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from steps.clients.releases.release_tree import ReleaseTree
from steps.errors import BadTask, Refused, StepError, StoreBusy, Temporary

CHUNK = 16 << 20
"""Bytes after which a long copy renews the lock."""


class BytesDiffer(Temporary):
    """A file that was written has other bytes than were sent."""


class MakeFolder(Struct, frozen=True):
    """Make a folder, and the folders above it."""

    path: str


class Put(Struct, frozen=True):
    """Write a new file with these bytes, or with those of a file of this machine, and flush it to disk. `size`: expected bytes."""

    path: str
    source: bytes | Path
    size: int


class CheckFile(Struct, frozen=True):
    """Read a file again and compare its size (bytes) and digest (`sha256:…`)."""

    path: str
    size: int
    digest: str


class Sync(Struct, frozen=True):
    """Flush the names in a folder to disk."""

    path: str


class Move(Struct, frozen=True):
    """Rename a file, folder or link to a name that is still free."""

    path: str
    to: str


class Replace(Struct, frozen=True):
    """Rename a file or link, in place of another one of that name."""

    path: str
    to: str


class Link(Struct, frozen=True):
    """Make a symbolic link."""

    path: str
    target: str


class Remove(Struct, frozen=True):
    """Remove a file, or a folder with everything in it. A missing one is no error."""

    path: str


class ConfirmLock(Struct, frozen=True):
    """Fail unless the lock of a folder still has this token; renew it."""

    folder: str
    token: str


class ReleaseLock(Struct, frozen=True):
    """Give the lock of a folder back, if it still has this token."""

    folder: str
    token: str


Operation = MakeFolder | Put | CheckFile | Sync | Move | Replace | Link | Remove | ConfirmLock | ReleaseLock


class Claimed(Struct, frozen=True, kw_only=True):
    """Outcome of asking for a lock: it was `had`; or it was `free`, but another process came first (`why`: the system's error); or
    lock `number` is held by `holder` (bytes of the lock file), who renewed it `age` seconds ago.
    """

    had: bool
    number: int = 0
    holder: bytes = b""
    age: float = 0.0
    free: bool = False
    why: str = ""


class TreeTransport(Protocol):
    """Access to a release tree, on this machine or another one. Methods raise a StepError that names the tree."""

    where: str

    def look(self, product: str, digests: Sequence[str] = ()) -> ReleaseTree:
        """Return a product's part of the tree. `digests` names the versions whose files are read (`release_tree.ALL`: all)."""
        ...

    def claim(self, folder: str, token: str, holder: bytes, over: int = 0) -> Claimed:
        """Ask for the lock of a folder. `over` is the number of a held lock whose holder is known to be gone."""
        ...

    def perform(self, operations: Iterable[Operation]) -> None:
        """Perform operations in order; stop at the first that fails."""
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
