"""Turns events of ansible-runner into the state of every host, for real and simulated hosts alike. Pure.

The state is kept here because ansible-runner has no statistics after a time-out or a cancellation (`playbooks/docs/facts.md`,
Events and exit codes of ansible-runner).
"""

import datetime
import json
from collections.abc import Iterable, Set
from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.ansible import failures as ansible_failures
from steps.clients.ansible.play_journal import BEGUN, ENDS
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.host_play import ENDED, FailureKind, HostOutcome, HostStatus, PlayEvent, PlayStatus
from steps.errors import StepError

FACTS = "observation"
"""Key of a module's result with its observation, as an object or as JSON text. A fact of this name counts too.

Ansible marks and copies every leaf of a result several times. Text is a single leaf and costs the controller a fifth.
"""


CUT_OFF = {PlayStatus.TIMEOUT: FailureKind.TIMEOUT, PlayStatus.CANCELLED: None}
"""Status of a play without statistics → failure kind of hosts that had no end. For other statuses Ansible itself ended early."""

QUOTED = 60
"""Number of first characters by which a failure is found in a later message that quotes it; longer texts are cut in the middle."""


class Data(Struct, frozen=True, kw_only=True):
    """Fields of an event's `event_data` that are used. The last four are those of `playbook_on_stats`, by host."""

    host: str = ""
    task: str = ""
    res: dict[str, Any] = {}
    ignore_errors: bool | None = None
    start: str = ""
    end: str = ""
    duration: float = 0.0
    ok: dict[str, int] = {}
    failures: dict[str, int] = {}
    dark: dict[str, int] = {}
    processed: dict[str, int] = {}


class RunnerEvent(Struct, frozen=True, kw_only=True):
    """An event as ansible-runner writes it."""

    event: str
    created: str | float = ""
    event_data: Data = msgspec.field(default_factory=Data)


class HostState:
    """State of one host after the events so far: its first failure, counts of tasks, and facts."""

    def __init__(self) -> None:
        self.status: HostStatus | None = None
        self.kind: FailureKind | None = None
        self.task = ""
        self.message = ""
        self.done = 0
        self.changed = 0
        self.facts: dict[str, Any] = {}
        self.unread = ""
        self.begun = ""
        self.ended = False
        self.window = (0.0, 0.0)

    def fail(self, status: HostStatus, kind: FailureKind, task: str, message: str) -> None:
        """Keep the first failure of a host, because later ones are its consequences.

        A later failure whose message begins with the first one's text replaces its message: a rescue section said more.
        """
        if self.status is None:
            self.status, self.kind, self.task, self.message = status, kind, task, message
        elif self.message and message.startswith(self.message[:QUOTED]):
            self.message = message


class Ledger:
    """State of all requested hosts of a play. Pass every event to `feed`, then read `outcomes`.

    `helpers` are other hosts to which tasks may be delegated. `marked`: the playbook marks each finished host (ENDED), since it has
    several plays.
    """

    def __init__(self, hosts: Iterable[str], helpers: Iterable[str] = (), *, marked: bool = False) -> None:
        self._hosts = {host: HostState() for host in hosts}
        self._named = {*self._hosts, *helpers}
        self._marked = marked
        self._stats: Data | None = None
        self.seen = 0

    def feed(self, raw: object) -> PlayEvent:
        """Apply one event and return it as a PlayEvent. Raises StepError for data that is no event of ansible-runner."""
        try:
            event = msgspec.convert(raw, RunnerEvent, strict=False)
        except msgspec.ValidationError as error:
            raise StepError(f"not an event of ansible-runner: {error}") from error
        data = event.event_data
        state = self._hosts.get(data.host)
        if event.event == "playbook_on_stats":
            self._stats = data
        if state is not None:
            self.seen += 1
            _take(state, event.event, data, self._named)
        failing = event.event in ("runner_on_failed", "runner_on_unreachable", "runner_item_on_failed")
        return PlayEvent(
            event=event.event,
            time=_seconds(event.created),
            host=data.host,
            task=data.task,
            changed=event.event == "runner_on_ok" and data.res.get("changed") is True,
            seconds=data.duration,
            message=ansible_failures.message(data.res) if failing else "",
        )

    @property
    def complete(self) -> bool:
        """Return True once Ansible has reported the end of the play."""
        return self._stats is not None

    def outcomes(self, ended: PlayStatus) -> tuple[HostOutcome, ...]:
        """Return one outcome for each requested host, in their order. `ended` says how the play ended."""
        return tuple(self._outcome(host, state, ended) for host, state in self._hosts.items())

    def _outcome(self, host: str, state: HostState, ended: PlayStatus) -> HostOutcome:
        status, kind, message = state.status, state.kind, state.message
        is_rescued = self._stats is not None and status is HostStatus.FAILED and not self._stats.failures.get(host)
        if is_rescued and (state.ended or not self._marked):  # otherwise the playbook ended before it could mark the host
            status, kind, message = None, None, ""  # a rescue section of the playbook handled the failure
        if status is None:
            status, kind, message = self._end(host, state, ended)
        return HostOutcome(
            host=host,
            status=status,
            kind=kind,
            task=(state.begun if status is HostStatus.CANCELLED else state.task) if status is not HostStatus.OK else "",
            message=message or state.unread,
            done=state.done,
            changed=state.changed,
            facts=state.facts,
            facts_from=state.window[0],
            facts_to=state.window[1],
        )

    def _end(self, host: str, state: HostState, ended: PlayStatus) -> tuple[HostStatus, FailureKind | None, str]:
        """Return status, failure kind and message of a host without a failure.

        It is ok only if Ansible says that the host took part until the end.
        """
        if self._stats is None:
            before = f"'{state.begun}' had an end on this host" if state.begun else "this host's end"
            return HostStatus.CANCELLED, CUT_OFF.get(ended, FailureKind.CONTROLLER), f"the play was cut off before {before}"
        if self._stats.failures.get(host):
            return HostStatus.FAILED, FailureKind.TASK_FAILED, "Ansible counts a failure without having shown it"
        if self._stats.dark.get(host):
            return HostStatus.UNREACHABLE, FailureKind.NETWORK, "Ansible counts it as unreachable without having shown it"
        # Ansible ends a playbook of several plays for all hosts if every host of one batch fails
        if self._marked and not state.ended:
            return (
                HostStatus.CANCELLED,
                FailureKind.NO_TURN,
                "others failed, with which Ansible ended the play before this host's end",
            )
        if not (self._stats.ok.get(host) or self._stats.processed.get(host)):
            return HostStatus.CANCELLED, None, "the play ended without a task on this host"
        return HostStatus.OK, None, ""


def _take(state: HostState, event: str, data: Data, named: Set[str]) -> None:
    if event == BEGUN:
        state.begun = data.task
    elif event in ENDS:
        state.begun = ""
    if event == "runner_on_unreachable":
        message = ansible_failures.message(data.res)
        state.fail(HostStatus.UNREACHABLE, ansible_failures.of_unreachable(message, named - {data.host}), data.task, message)
    elif event == "runner_on_failed" and not data.ignore_errors:
        message = ansible_failures.message(data.res)
        state.fail(HostStatus.FAILED, ansible_failures.of_result(data.res), data.task, message)
    elif event == "runner_on_ok":
        state.done += 1
        state.changed += data.res.get("changed") is True
        state.ended = state.ended or _facts(data).get(ENDED) is True
    if event in ("runner_on_ok", "runner_on_failed"):
        _take_facts(state, data)


def _take_facts(state: HostState, data: Data) -> None:
    facts = data.res.get(FACTS)
    if facts is None:
        facts = _facts(data).get(FACTS)
    if facts is None:
        return
    read = _read(facts)
    state.unread = "" if read is not None else f"what '{data.task}' observed cannot be read: it is no JSON object"
    state.facts, state.window = read or {}, (_seconds(data.start), _seconds(data.end))


def _facts(data: Data) -> dict[str, Any]:
    """Return the Ansible facts that a task set on its host; empty if it set none."""
    facts = data.res.get("ansible_facts")
    return facts if isinstance(facts, dict) else {}


def _read(observation: object) -> dict[str, Any] | None:
    """Return an observation given as an object or as JSON text; None for anything else, so that only this host is affected."""
    try:
        # bytes that are no UTF-8 have become lone surrogates, which no record can hold
        text = json.dumps(json.loads(observation) if isinstance(observation, str) else observation, ensure_ascii=False)
        read = msgspec.json.decode(text.encode(errors="replace"))
    except (ValueError, *UNREADABLE_JSON):
        return None
    return read if isinstance(read, dict) else None


def _seconds(moment: str | float) -> float:
    """Return an ISO time as UTC seconds since the epoch; UTC is assumed without a zone. Returns 0 if there is none."""
    if isinstance(moment, float | int):
        return float(moment)
    try:
        parsed = datetime.datetime.fromisoformat(moment)
    except ValueError:
        return 0.0
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)).timestamp()
