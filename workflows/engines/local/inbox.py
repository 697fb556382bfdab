"""The run's inbox: one file an operator's action, made whole by a rename; answers lie beside them."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from workflows.engines.local.errors import RunDirectoryError, StorageError

LARGEST_REQUEST = 256 << 10
POLL = 0.1  # seconds between two looks of the engine; an action waits this long at most


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """approve, set, resume, stop, terminate or suspend; `node` is a display name or full path, "" the whole workflow."""

    verb: str
    node: str = ""
    parameters: dict[str, str] = {}
    message: str = ""


class Reply(msgspec.Struct, frozen=True):
    """`error` is "" when the action was accepted."""

    error: str

    @property
    def accepted(self) -> bool:
        """Whether the action was done."""
        return not self.error


def folder(run_dir: Path) -> Path:
    """Where requests lie."""
    return run_dir / "inbox"


def answers(run_dir: Path) -> Path:
    """Where replies lie."""
    return run_dir / "inbox" / "answers"


def _write(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except OSError as err:
        raise StorageError(f"cannot write {path}: {err.strerror}") from err


def send(run_dir: Path, verb: str, node: str = "", parameters: Mapping[str, str] | None = None, message: str = "") -> str:
    """Ask the engine of a run for something; returns the ticket.  RunDirectoryError when there is no such run."""
    if not folder(run_dir).is_dir():
        raise RunDirectoryError(f"{run_dir} holds no run (no inbox)")
    ticket = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
    request = Request(verb, node, dict(parameters or {}), message)
    _write(folder(run_dir) / f"{ticket}.json", msgspec.json.encode(request))
    return ticket


def reply(run_dir: Path, ticket: str) -> Reply | None:
    """What came of a ticket; None while no engine has looked at it."""
    try:
        return msgspec.json.decode((answers(run_dir) / f"{ticket}.json").read_bytes(), type=Reply)
    except FileNotFoundError:
        return None


def wait(run_dir: Path, ticket: str, timeout: float) -> Reply | None:
    """Like `reply`, waiting up to `timeout` seconds."""
    end = time.monotonic() + timeout
    while (found := reply(run_dir, ticket)) is None and time.monotonic() < end:
        time.sleep(POLL / 2)
    return found


class Inbox:
    """The engine's side."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        try:
            answers(run_dir).mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise RunDirectoryError(f"cannot make the inbox in {run_dir}: {err.strerror}") from err

    def look(self) -> list[tuple[str, Request | str]]:
        """Tickets and requests in the order sent; a text instead of a request says why the file is none."""
        names = sorted(
            entry.name for entry in os.scandir(folder(self._run_dir)) if entry.name.endswith(".json") and entry.is_file()
        )
        return [
            (name.removesuffix(".json"), self._read(folder(self._run_dir) / name)) for name in names if not name.startswith(".")
        ]

    def _read(self, path: Path) -> Request | str:
        try:
            if path.stat().st_size > LARGEST_REQUEST:
                return f"the request is larger than {LARGEST_REQUEST} bytes"
            return msgspec.json.decode(path.read_bytes(), type=Request)
        except (OSError, msgspec.MsgspecError) as err:
            return f"the request cannot be read: {err}"

    def answer(self, ticket: str, error: str) -> None:
        """Reply, then take the request away (in this order: a request without a reply is looked at again)."""
        _write(answers(self._run_dir) / f"{ticket}.json", msgspec.json.encode(Reply(error)))
        (folder(self._run_dir) / f"{ticket}.json").unlink(missing_ok=True)
