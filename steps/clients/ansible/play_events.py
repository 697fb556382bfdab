"""What each host did in a play, task by task, as lines of JSON for the store: what a record has no room for, within a bound."""

import msgspec

from steps.contract.play import PlayEvent

MOST_BYTES = 4 << 20
FOR_FAILURES = 1 << 20
"""The last part of that is kept for what went wrong, which comes late."""

BEGUN = "runner_on_start"
FAILURES = frozenset({"runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"})
KEPT = frozenset({"runner_on_ok", *FAILURES})
ENDS = frozenset({"runner_on_ok", "runner_on_failed", "runner_on_unreachable", "runner_on_skipped"})
NOTED = frozenset({BEGUN, *KEPT, *ENDS})
"""What tells of a host: all of this together says how far each one was."""
LEFT_OUT = "left_out"
"""Event of the last line, where there was no room for all."""


class PlayEvents:
    """Takes the events of a play; keeps the ends of tasks, and of tasks without an end their beginning."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0
        self._left_out = 0
        self._begun: dict[str, PlayEvent] = {}

    def take(self, event: PlayEvent) -> None:
        """Keep what a host did. What it skipped, and what is about no host, says nothing of it."""
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
        """All lines, secrets included; tasks that have not ended come last, and then how much was left out."""
        last = [msgspec.json.encode(event) + b"\n" for event in self._begun.values()]
        if self._left_out:
            said = f"{self._left_out} events left out beyond {MOST_BYTES >> 20} MiB"
            last.append(msgspec.json.encode(PlayEvent(event=LEFT_OUT, time=0.0, message=said)) + b"\n")
        return b"".join([*self._lines, *last]).decode()
