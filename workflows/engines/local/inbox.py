"""The inbox of a run: a file for each request of an operator to the engine, and a file for each reply.

A request appears by a rename, so that the engine never reads half of it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from steps.contract.canonical import UNREADABLE_JSON
from workflows.engines.local.errors import RunDirectoryError, StorageError

LARGEST_REQUEST = 256 << 10
POLL = 0.1  # seconds between two looks of the engine; an action waits this long at most


class OperatorRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request of an operator to the engine: approve, set, resume, stop, terminate or suspend.

    `node` is a display name or full path; "" means the whole workflow.
    """

    verb: str
    node: str = ""
    parameters: dict[str, str] = {}
    message: str = ""


class OperatorReply(msgspec.Struct, frozen=True):
    """The engine's reply to a request; `error` is "" if the engine did what was asked."""

    error: str

    @property
    def accepted(self) -> bool:
        """Return True if the engine did what was asked."""
        return not self.error


def folder(run_dir: Path) -> Path:
    """Return the folder in which a run's requests lie."""
    return run_dir / "inbox"


def answers(run_dir: Path) -> Path:
    """Return the folder in which the replies to a run's requests lie."""
    return run_dir / "inbox" / "answers"


def _write(path: Path, content: bytes) -> None:
    # the engine must never read half a request, so the file appears by a rename
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
    """Write a request for the engine of a run, and return its ticket. Raises RunDirectoryError if there is no such run."""
    if not folder(run_dir).is_dir():
        raise RunDirectoryError(f"{run_dir} holds no run (no inbox)")
    ticket = f"{time.time_ns():020d}-{secrets.token_hex(4)}"  # padded: the engine takes requests in the order of their names
    request = OperatorRequest(verb, node, dict(parameters or {}), message)
    _write(folder(run_dir) / f"{ticket}.json", msgspec.json.encode(request))
    return ticket


def reply(run_dir: Path, ticket: str) -> OperatorReply | None:
    """Return the reply to the request with this ticket; None while no engine has read the request."""
    try:
        return msgspec.json.decode((answers(run_dir) / f"{ticket}.json").read_bytes(), type=OperatorReply)
    except FileNotFoundError:
        return None
    except UNREADABLE_JSON as err:
        return OperatorReply(f"the engine's reply cannot be read: {err}")


def wait(run_dir: Path, ticket: str, timeout: float) -> OperatorReply | None:
    """Wait up to `timeout` seconds for the reply to the request with this ticket; return it, or None if there is none."""
    end = time.monotonic() + timeout
    while (answer_found := reply(run_dir, ticket)) is None and time.monotonic() < end:
        time.sleep(POLL / 2)
    return answer_found


class Inbox:
    """The inbox as the engine uses it: it reads requests and writes replies."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        try:
            answers(run_dir).mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise RunDirectoryError(f"cannot create the inbox in {run_dir}: {err.strerror}") from err

    def look(self) -> list[tuple[str, OperatorRequest | str]]:
        """Return pairs of ticket and request in the order of sending; a text in place of a request says why its file is invalid."""
        names = sorted(
            entry.name for entry in os.scandir(folder(self._run_dir)) if entry.name.endswith(".json") and entry.is_file()
        )
        return [
            (name.removesuffix(".json"), self._read(folder(self._run_dir) / name)) for name in names if not name.startswith(".")
        ]

    def _read(self, path: Path) -> OperatorRequest | str:
        try:
            if path.stat().st_size > LARGEST_REQUEST:
                return f"the request is larger than {LARGEST_REQUEST} bytes"
            return msgspec.json.decode(path.read_bytes(), type=OperatorRequest)
        except (OSError, *UNREADABLE_JSON) as err:
            return f"the request cannot be read: {err}"

    def answer(self, ticket: str, error: str) -> None:
        """Write the reply, then delete the request. After a crash in between the request is read again, but no reply is lost."""
        _write(answers(self._run_dir) / f"{ticket}.json", msgspec.json.encode(OperatorReply(error)))
        (folder(self._run_dir) / f"{ticket}.json").unlink(missing_ok=True)
