"""What a transport does to a tree, step by step, and what it says where a step fails; all paths are relative to the tree's root."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from steps.clients.published.tree import Tree
from steps.errors import BadTask, Refused, StepError, StoreBusy, Temporary

CHUNK = 16 << 20
"""Bytes after which a long copy renews the lock."""


class Differs(Temporary):
    """A file that was written has other bytes than it should have."""


class Folder(Struct, frozen=True):
    """Make a folder, and those above it."""

    path: str


class Put(Struct, frozen=True):
    """A new file with these bytes, or those of a file of this machine, flushed to disk. `size` is what it must have."""

    path: str
    source: bytes | Path
    size: int


class Check(Struct, frozen=True):
    """Read a file again: it must have this size and digest (`sha256:…`)."""

    path: str
    size: int
    digest: str


class Sync(Struct, frozen=True):
    """Flush a folder's names to disk."""

    path: str


class Move(Struct, frozen=True):
    """Give something another name that nothing has yet."""

    path: str
    to: str


class Replace(Struct, frozen=True):
    """Give a file or link another name, in place of what has it."""

    path: str
    to: str


class Link(Struct, frozen=True):
    """A new symbolic link."""

    path: str
    target: str


class Remove(Struct, frozen=True):
    """Remove a file, or a folder with all in it. Nothing there is fine."""

    path: str


class Held(Struct, frozen=True):
    """The lock of this folder must still be that of the token; renews it."""

    folder: str
    token: str


class Release(Struct, frozen=True):
    """Give the lock back, where the token still has it."""

    folder: str
    token: str


Operation = Folder | Put | Check | Sync | Move | Replace | Link | Remove | Held | Release


class Claimed(Struct, frozen=True, kw_only=True):
    """Whether the lock was had; else which one is held and by whom, in the words of its file, and since how many seconds it was not
    renewed."""

    had: bool
    number: int = 0
    holder: bytes = b""
    age: float = 0.0
    free: bool = False
    why: str = ""


class Transport(Protocol):
    """One way to a tree. Every method raises a StepError that names the place."""

    where: str

    def look(self, image: str, digests: Sequence[str] = ()) -> Tree:
        """What is there. `digests` names the versions whose files are read whole (`tree.ALL`: every one)."""
        ...

    def claim(self, folder: str, token: str, holder: bytes, over: int = 0) -> Claimed:
        """Try to have the lock of a folder, also after the one numbered `over`, whose holder is gone."""
        ...

    def perform(self, operations: Iterable[Operation]) -> None:
        """Do these in order; stops at the first that fails."""
        ...

    def close(self) -> None:
        """End the connection, where there is one."""
        ...


def failure(code: str, what: str, where: str) -> StepError:
    """The error that a failed step becomes. `code` is one of those that both transports know."""
    match code:
        case "digest":
            hint = "the disk or the way to it changed bytes; publish again, and look at the disk where it stays so"
            return Differs(f"{where}: {what} has other bytes than were written", hint=hint)
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
            hint = "incoming, versions and boot must lie in one file system, so that a rename is one step"
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
