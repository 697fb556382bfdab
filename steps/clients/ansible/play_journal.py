"""Journal of a play: its events in a file in the store as they come. If a step is killed, the next step stores its journal.

The step holds the file locked; an unlocked one belongs to a killed step. The journal is limited in size, and redacted by the
secrets known when an event comes. A store that refuses it does not stop the play.
"""

import fcntl
import os
import tempfile
from pathlib import Path

import msgspec

from steps.clients import regular_files
from steps.clients.output_log import Log
from steps.clients.regular_files import FileKind
from steps.clients.store import AlreadyWritten, Store
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.host_play import PlayEvent
from steps.contract.runs.log_keys import cut_off_key
from steps.errors import StepError

MOST_BYTES = 4 << 20
FOR_FAILURES = 1 << 20
"""Bytes of the limit that are reserved for failures, which come late."""

BEGUN = "runner_on_start"
FAILURES = frozenset({"runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"})
KEPT = frozenset({"runner_on_ok", *FAILURES})
ENDS = frozenset({"runner_on_ok", "runner_on_failed", "runner_on_unreachable", "runner_on_skipped"})
NOTED = frozenset({BEGUN, *KEPT, *ENDS})
"""Events that the journal notes. Together they say how far each host got."""
LEFT_OUT = "left_out"
"""Name of the event that ends the lines if there was no room for all; its message counts the dropped ones."""


class PlayEvents:
    """Collector of the events of a play that are to be stored: the ends of tasks, and the beginnings of tasks without an end."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0
        self._left_out = 0
        self._begun: dict[str, PlayEvent] = {}

    def take(self, event: PlayEvent) -> None:
        """Keep an event. Skipped tasks and events without a host are ignored."""
        if event.event == BEGUN:
            self._begun[event.host] = event
        elif event.event in ENDS:
            self._begun.pop(event.host, None)
        if event.event in KEPT:
            self._keep(event, MOST_BYTES if event.event in FAILURES else MOST_BYTES - FOR_FAILURES)

    def _keep(self, event: PlayEvent, room: int) -> None:
        line = msgspec.json.encode(event) + b"\n"
        if self._size + len(line) > room:
            self._left_out += 1
            return
        self._lines.append(line)
        self._size += len(line)

    def text(self) -> str:
        """Return the events as lines of JSON, secrets included. Unfinished tasks come last, then the number of dropped events."""
        last = [msgspec.json.encode(event) + b"\n" for event in self._begun.values()]
        if self._left_out:
            message = f"{self._left_out} events left out beyond {MOST_BYTES >> 20} MiB"
            last.append(msgspec.json.encode(PlayEvent(event=LEFT_OUT, time=0.0, message=message)) + b"\n")
        return b"".join([*self._lines, *last]).decode()


PREFIX = ".playing-"
"""Prefix of journal files. They are hidden: no key of the store, hence no part of evidence, seal or report."""

CUT_OFF = "cut_off"
"""Name of the event that ends a journal which was collected after its step was killed."""


class PlayJournal:
    """The journal of one attempt. The first event creates its file, after collecting the journals of killed attempts."""

    def __init__(self, store: Store, folder: str, log: Log) -> None:
        self._store = store
        self._folder = folder
        self._log = log
        self._file: int | None = None
        self._path: Path | None = None
        self._is_over = False
        self._room = 2 * MOST_BYTES

    def note(self, event: PlayEvent) -> None:
        """Append an event about a host to the journal; ignore other events. A refused write ends the journal and is logged."""
        if self._is_over or event.event not in NOTED:
            return
        try:
            if self._file is None:
                self._begin()
            self._append(event)
        except (OSError, StepError) as error:
            self._is_over = True
            self._log.say(f"what hosts do is not written down as it comes: {error}")

    def _begin(self) -> None:
        collect(self._store, self._folder, self._log)
        folder = self._store.path(self._folder)
        folder.mkdir(parents=True, exist_ok=True)
        # locked before it gets its name, so that nobody takes it for that of a dead step
        self._file, name = tempfile.mkstemp(prefix=".new-", dir=folder)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._path = Path(name).with_name(PREFIX + name.rpartition("-")[2])
        Path(name).rename(self._path)

    def _append(self, event: PlayEvent) -> None:
        assert self._file is not None
        line = self._log.redactor.data(msgspec.json.encode(event) + b"\n")
        self._room -= len(line)
        self._is_over = self._room < 0
        if not self._is_over:
            os.write(self._file, line)  # not flushed: what the kernel has survives a killed step

    def remove(self) -> None:
        """Remove the journal's file; call this once its events are stored."""
        self._is_over = True
        if self._path is not None and self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._path = self._file = None


def collect(store: Store, folder: str, log: Log) -> None:
    """Store the journals that killed steps left below a folder, each under its own key, and remove them.

    Raises StoreBusy or OSError.
    """
    for path in sorted(store.path(folder).rglob(f"{PREFIX}*")):
        if regular_files.kind_of(path) is not FileKind.FILE:
            continue  # no step of ours makes links or FIFOs here; opening one could block, or read something else
        with path.open("rb") as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # its step is alive
            data = opened.read(2 * MOST_BYTES)
            ended = os.fstat(opened.fileno()).st_mtime
        if data:
            key = _keep(store, path.parent.relative_to(store.root).as_posix(), log.redactor.data(_text(data, ended)))
            log.say(f"a step was cut off in its play; what its hosts had done by then: {key}")
        path.unlink(missing_ok=True)


def _keep(store: Store, folder: str, data: bytes) -> str:
    """Store the data under the next free number, unless it is stored already. Return its key."""
    number = 1
    while True:
        key = cut_off_key(folder, number)
        try:
            store.write(key, data)
        except AlreadyWritten:
            if store.read(key) == data:  # by a step that was killed before it removed the journal
                return key
            number += 1
        else:
            return key


def _text(data: bytes, ended: float) -> bytes:
    """Return the events in a dead journal as `PlayEvents.text` would, followed by an event that says that the play was cut off.

    A half line at the journal's end is dropped.
    """
    events = PlayEvents()
    for line in data.splitlines(keepends=True):
        try:
            events.take(msgspec.json.decode(line if line.endswith(b"\n") else b"", type=PlayEvent))
        except UNREADABLE_JSON:
            break
    last = PlayEvent(event=CUT_OFF, time=ended, message="the step that played was killed: what hosts did after this is not known")
    return events.text().encode() + msgspec.json.encode(last) + b"\n"
