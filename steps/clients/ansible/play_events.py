"""Events of a play for the store: the work of each host, task by task, as lines of JSON within a size limit."""

import msgspec

from steps.contract.play import PlayEvent

MOST_BYTES = 4 << 20
FOR_FAILURES = 1 << 20
"""Bytes at the end that are reserved for failures, which come late."""

BEGUN = "runner_on_start"
FAILURES = frozenset({"runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"})
KEPT = frozenset({"runner_on_ok", *FAILURES})
ENDS = frozenset({"runner_on_ok", "runner_on_failed", "runner_on_unreachable", "runner_on_skipped"})
NOTED = frozenset({BEGUN, *KEPT, *ENDS})
"""Events about a host. Together they say how far each host got."""
LEFT_OUT = "left_out"
"""Event of the last line if there was no room for all."""


class PlayEvents:
    """Collector of a play's events. It keeps the ends of tasks, and the beginnings of tasks without an end."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0
        self._left_out = 0
        self._begun: dict[str, PlayEvent] = {}

    def take(self, event: PlayEvent) -> None:
        """Keep an event of a host. Skipped tasks and events without a host are ignored."""
        if event.event == BEGUN:
            self._begun[event.host] = event
        elif event.event in ENDS:
            self._begun.pop(event.host, None)
        if event.event in KEPT:
            # failures come late, so the end of the space is reserved for them
            self._keep(event, MOST_BYTES if event.event in FAILURES else MOST_BYTES - FOR_FAILURES)

    def _keep(self, event: PlayEvent, room: int) -> None:
        line = msgspec.json.encode(event) + b"\n"
        if self._size + len(line) > room:
            self._left_out += 1
            return
        self._lines.append(line)
        self._size += len(line)

    def text(self) -> str:
        """Return all lines, secrets included. Unfinished tasks come last, followed by the number of dropped events."""
        last = [msgspec.json.encode(event) + b"\n" for event in self._begun.values()]
        if self._left_out:
            message = f"{self._left_out} events left out beyond {MOST_BYTES >> 20} MiB"
            last.append(msgspec.json.encode(PlayEvent(event=LEFT_OUT, time=0.0, message=message)) + b"\n")
        return b"".join([*self._lines, *last]).decode()
