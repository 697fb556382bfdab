"""Simulated runs of Ansible playbooks: stage modules register what happens on each host; results become ansible-runner events."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from steps.contract.host_play import ENDED, PlayHost, PlayRequest
from steps.stages.site_roles.contract import PLAYBOOK
from workflows.rehearsal.simulator.world import World


class TaskStatus(StrEnum):
    """The result of one Ansible task on one host."""

    OK = "ok"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"
    UNREACHABLE = "unreachable"


class TaskOutcome(Struct, frozen=True, kw_only=True):
    """One Ansible task on one host and its result.

    `result` is Ansible's result dict (`msg`, `observation`, …), `seconds` the duration. After the status failed or unreachable the
    host takes part in no further task, as with Ansible.
    """

    host: str
    task: str
    status: TaskStatus = TaskStatus.OK
    seconds: float = 1.0
    action: str = "ansible.builtin.command"
    result: dict[str, Any] = {}


def unreachable(host: PlayHost, task: str, action: str = "ansible.builtin.command") -> TaskOutcome:
    """Return the outcome of a task on a host that does not answer to SSH."""
    message = f"Failed to connect to the host via ssh: ssh: connect to host {host.address} port 22: No route to host"
    result = {"unreachable": True, "msg": message}
    return TaskOutcome(host=host.name, task=task, status=TaskStatus.UNREACHABLE, seconds=10, action=action, result=result)


def failed(host: str, task: str, message: str, seconds: float, action: str = "ansible.builtin.assert") -> TaskOutcome:
    """Return the outcome of a task that fails on a host with this message after `seconds`."""
    result = {"msg": message}
    return TaskOutcome(host=host, task=task, status=TaskStatus.FAILED, seconds=seconds, action=action, result=result)


Answer = Callable[[World, PlayRequest], Iterable[TaskOutcome]]
"""A function that plays a playbook: it changes `world.hosts`, calls `world.wake()`, and yields outcomes task by task."""

_ANSWERS: dict[str, Answer] = {}


def play(name: str) -> Callable[[Answer], Answer]:
    """Return a decorator that registers the function which plays the playbook `NAME.yml`."""

    def register(answer: Answer) -> Answer:
        _ANSWERS[name] = answer
        return answer

    return register


class UnknownPlayError(LookupError):
    """Raised for a playbook that no stage module has registered."""


def run_play(world: World, request: PlayRequest) -> list[dict[str, Any]]:
    """Play a playbook and return its ansible-runner events in order. Raises UnknownPlayError.

    Event times are virtual and lie in the future, because the clock does not move while a playbook is played.
    """
    name = request.playbook.removesuffix(".yml")
    if name not in _ANSWERS:
        raise UnknownPlayError(f"no simulated playbook {name!r}: there are {', '.join(sorted(_ANSWERS))}")
    outcomes = _until_dropped(_unreached(world, request), _ANSWERS[name](world, request))
    return list(_events(world, request, _to_the_end(outcomes)))


def _unreached(world: World, request: PlayRequest) -> list[TaskOutcome]:
    """Return an unreachable outcome for each requested host that is not in the fleet."""
    message = "Failed to connect to the host via ssh: ssh: connect to host {} port {}: Connection timed out"
    return [
        TaskOutcome(
            host=host.name,
            task="Gathering Facts",
            status=TaskStatus.UNREACHABLE,
            seconds=10,
            action="gather_facts",
            result={"unreachable": True, "changed": False, "msg": message.format(host.address, host.port)},
        )
        for host in request.hosts
        if host.name not in world.fleet
    ]


def _until_dropped(first: Iterable[TaskOutcome], outcomes: Iterable[TaskOutcome]) -> Iterator[TaskOutcome]:
    dropped: set[str] = set()
    for outcome in (*first, *outcomes):
        if outcome.host in dropped:
            continue
        if outcome.status in (TaskStatus.FAILED, TaskStatus.UNREACHABLE):
            dropped.add(outcome.host)
        yield outcome


def _to_the_end(outcomes: Iterable[TaskOutcome]) -> Iterator[TaskOutcome]:
    """Yield the outcomes, then for each host without failure the last task, which records that the playbook has ended."""
    there: dict[str, bool] = {}
    for outcome in outcomes:
        there[outcome.host] = outcome.status not in (TaskStatus.FAILED, TaskStatus.UNREACHABLE)
        yield outcome
    result = {"ansible_facts": {ENDED: True}}
    for host in (name for name, is_there in there.items() if is_there):
        yield TaskOutcome(
            host=host, task="Record the end of the play", seconds=0.0, action="ansible.builtin.set_fact", result=result
        )


_NAMES = {
    TaskStatus.FAILED: "runner_on_failed",
    TaskStatus.UNREACHABLE: "runner_on_unreachable",
    TaskStatus.SKIPPED: "runner_on_skipped",
}
_STATS = {
    TaskStatus.FAILED: ("failures",),
    TaskStatus.UNREACHABLE: ("dark",),
    TaskStatus.SKIPPED: ("skipped",),
    TaskStatus.CHANGED: ("ok", "changed"),
    TaskStatus.OK: ("ok",),
}


def _events(world: World, request: PlayRequest, outcomes: Iterable[TaskOutcome]) -> Iterator[dict[str, Any]]:
    name = f"{request.playbook.removesuffix('.yml')}.yml"
    numbers = itertools.count(1)

    def event(kind: str, at: float, data: dict[str, Any]) -> dict[str, Any]:
        number = next(numbers)
        return {
            "uuid": f"00000000-0000-4000-8000-{number:012d}",
            "counter": number,
            "stdout": "",
            "event": kind,
            "created": _iso(at),
            "event_data": {"playbook": name, "play": name} | data,
        }

    stats: dict[str, dict[str, int]] = {
        key: defaultdict(int) for key in ("ok", "changed", "dark", "failures", "skipped", "rescued", "ignored")
    }
    at, longest, task = world.now, 0.0, ""
    yield event("playbook_on_start", at, {})
    yield event("playbook_on_play_start", at, {"name": name, "pattern": "all"})
    addresses = {host.name: host for host in request.hosts}
    for outcome in outcomes:
        if outcome.task != task:
            at, longest, task = at + longest, 0.0, outcome.task
            yield event("playbook_on_task_start", at, {"task": task, "name": task, "task_action": outcome.action})
        longest = max(longest, outcome.seconds)
        yield event(*_runner(outcome, at, addresses.get(outcome.host)))
        for column in _STATS[outcome.status]:
            stats[column][outcome.host] += 1
    processed = {host.name: 1 for host in request.hosts}
    yield event("playbook_on_stats", at + longest, {key: dict(value) for key, value in stats.items()} | {"processed": processed})


def _runner(outcome: TaskOutcome, at: float, host: PlayHost | None) -> tuple[str, float, dict[str, Any]]:
    end = at + outcome.seconds
    data = {
        "host": outcome.host,
        "remote_addr": host.address if host else "",
        "task": outcome.task,
        "task_action": outcome.action,
        "res": {"changed": outcome.status is TaskStatus.CHANGED} | outcome.result,
        "start": _iso(at),
        "end": _iso(end),
        "duration": outcome.seconds,
    }
    return _NAMES.get(outcome.status, "runner_on_ok"), end, data


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@play(PLAYBOOK)
def site_role(world: World, request: PlayRequest) -> Iterator[TaskOutcome]:
    """Play an Ansible role that the site brings. Its effect is unknown, so each machine reports its end and changes nothing."""
    role = request.role
    ran = {"role": role.name, "digest": role.digest} if role else {}
    for host in request.hosts:
        if host.name in world.fleet:
            yield TaskOutcome(host=host.name, task="Record the end of the role", action="role_ran", result={"observation": ran})
