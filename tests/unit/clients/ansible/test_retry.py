"""A temporary failure gets a second try, and nothing else does: a stand-in for the simulated hosts answers play after play."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from steps.clients.ansible import playing
from steps.contract.host_play import ENDED, FailureKind, HostOutcome, HostStatus, PlayHost, PlayRequest, PlayResult, PlayStatus
from tests.unit.answered_plays import answered, names

SSH = "Failed to connect to the host via ssh: "
AWAY = {"event": "runner_on_unreachable", "res": {"msg": SSH + "ssh: connect to host 192.0.2.1 port 22: No route to host"}}
LOCKED = {"event": "runner_on_failed", "res": {"msg": "package chrony: E: Could not get lock /var/lib/dpkg/lock-frontend"}}
CHANGED = {"event": "runner_on_ok", "res": {"changed": True, "observation": '{"try": 1}'}}
SAME = {"event": "runner_on_ok", "res": {"changed": False, "observation": {"try": 2}}}
LOOKED = {"event": "runner_on_ok", "res": {"changed": False, "observation": {"version": "old"}}}
JOINED = {"event": "runner_on_ok", "res": {"changed": True, "ansible_facts": {ENDED: True}}}
COLUMNS = {"runner_on_unreachable": "dark", "runner_on_failed": "failures", "runner_on_ok": "ok"}


def play(
    answers: dict[str, list[dict[str, Any]]], *, cut: int = -1, groups: tuple[str, ...] = (), **words: Any
) -> tuple[PlayResult, list[dict[str, Any]]]:
    """A play in which each host gives its next answer with every try, and the requests; try number `cut` has no statistics."""
    tries = itertools.count()

    def answer(hosts: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        number = next(tries)
        stats: dict[str, Any] = {"processed": dict.fromkeys(hosts, 1)}
        for name in hosts:
            given = answers[name][min(number, len(answers[name]) - 1)]
            stats.setdefault(COLUMNS[given["event"]], {})[name] = 1
            yield given["event"], {"host": name, "task": "t", "res": given["res"]}
        if number != cut:
            yield "playbook_on_stats", stats

    hosts = tuple(PlayHost(name=name, address="192.0.2.1", groups=groups) for name in answers)
    with answered(answer) as (url, requests):
        result = playing.play(PlayRequest(hosts=hosts, **{"playbook": "os_prep", **words}), environ={"BRINGUP_SIMULATOR": url})
    return result, requests


def row(one: HostOutcome) -> tuple[HostStatus, FailureKind | None, int, int]:
    return one.status, one.kind, one.tries, one.changed


def test_only_hosts_with_a_temporary_failure_are_played_again() -> None:
    denied = {"event": "runner_on_unreachable", "res": {"msg": SSH + "root@192.0.2.1: Permission denied (publickey)."}}
    hung = {"event": "runner_on_failed", "res": {"msg": "Timed out after 900 second(s)."}}
    result, asked = play({"n1": [CHANGED], "n2": [AWAY, CHANGED], "n3": [LOCKED, SAME], "n4": [denied], "n5": [hung], "n6": [AWAY]})

    assert [names(one) for one in asked] == [["n1", "n2", "n3", "n4", "n5", "n6"], ["n2", "n3", "n6"]]
    assert [row(one) for one in result.hosts] == [
        (HostStatus.OK, None, 1, 1),
        (HostStatus.OK, None, 2, 1),
        (HostStatus.OK, None, 2, 0),
        (HostStatus.UNREACHABLE, FailureKind.SSH_AUTH, 1, 0),
        (HostStatus.FAILED, FailureKind.TIMEOUT, 1, 0),
        (HostStatus.UNREACHABLE, FailureKind.NETWORK, 2, 0),
    ]
    assert [one.facts for one in result.hosts[:3]] == [{"try": 1}, {"try": 1}, {"try": 2}]
    assert result.status is PlayStatus.FAILED


def test_servers_that_need_no_second_try_help_those_that_do() -> None:
    _, asked = play({"n1": [AWAY, SAME], "n2": [SAME]}, groups=("control", "server"))

    assert [names(one) for one in asked] == [["n1", "n2"], ["n1"]]
    assert [names(one, "helpers") for one in asked] == [[], ["n2"]]


def test_hosts_that_go_together_are_all_played_again_but_not_after_a_failure_that_stays() -> None:
    result, asked = play({"n1": [AWAY, CHANGED], "n2": [SAME]}, groups=("control", "server"), together=True)
    assert [(names(one), names(one, "helpers")) for one in asked] == [(["n1", "n2"], []), (["n1", "n2"], [])]
    assert (result.status, [one.tries for one in result.hosts]) == (PlayStatus.OK, [2, 2])

    broken = {"event": "runner_on_failed", "res": {"msg": "n1 did not come to v1.35.8+rke2r1 and runs v1.35.7+rke2r1 again"}}
    _, asked = play({"n1": [broken], "n2": [AWAY, CHANGED]}, groups=("control", "server"), together=True)
    assert len(asked) == 1, "n2 would be upgraded after n1 has failed"


def test_a_play_whose_hosts_all_came_through_in_the_end_is_ok() -> None:
    assert play({"n1": [AWAY, SAME]})[0].status is PlayStatus.OK


def test_hosts_that_had_no_turn_are_played_until_they_had_it_and_those_that_stay_away_once_more() -> None:
    result, asked = play(
        {"n1": [AWAY], "n2": [LOOKED, AWAY], "n3": [LOOKED, LOOKED, JOINED], "n4": [LOOKED, LOOKED, JOINED]}, playbook="rke2_agent"
    )

    assert [names(one) for one in asked] == [["n1", "n2", "n3", "n4"], ["n1", "n2", "n3", "n4"], ["n3", "n4"]]
    assert [row(one) for one in result.hosts] == [
        (HostStatus.UNREACHABLE, FailureKind.NETWORK, 2, 0),
        (HostStatus.UNREACHABLE, FailureKind.NETWORK, 2, 0),
        (HostStatus.OK, None, 3, 1),
        (HostStatus.OK, None, 3, 1),
    ]


def test_hosts_that_never_have_a_turn_are_not_played_for_ever() -> None:
    result, asked = play({"n1": [LOOKED]}, playbook="rke2_agent")

    assert len(asked) == 2
    assert row(result.hosts[0]) == (HostStatus.CANCELLED, FailureKind.NO_TURN, 2, 0)


def test_where_hosts_drop_out_one_after_another_the_plays_have_an_end() -> None:
    answers = {f"n{number:02d}": [*[LOOKED] * number, AWAY] for number in range(12)}
    result, asked = play(answers, playbook="rke2_agent")

    assert len(asked) == 8
    assert [one.kind for one in result.hosts] == [FailureKind.NETWORK] * 8 + [FailureKind.NO_TURN] * 4


def test_servers_that_had_no_turn_after_one_that_stays_broken_are_not_played_again() -> None:
    broken = {"event": "runner_on_failed", "res": {"msg": "n1 did not come to v1.35.8+rke2r1"}}
    result, asked = play({"n1": [broken], "n2": [LOOKED]}, playbook="rke2_server", groups=("server",), together=True)

    assert len(asked) == 1
    assert [one.status for one in result.hosts] == [HostStatus.FAILED, HostStatus.CANCELLED]


def test_without_time_left_nothing_is_played_again() -> None:
    assert [names(one) for one in play({"n1": [AWAY, SAME]}, timeout_seconds=5)[1]] == [["n1"]]


def test_hosts_of_an_ansible_that_died_are_played_once_more_but_for_those_that_had_failed() -> None:
    failed = {"event": "runner_on_failed", "res": {"msg": "boom"}}
    result, asked = play({"n1": [CHANGED, SAME], "n2": [failed], "n3": [SAME]}, cut=0)

    assert [names(one) for one in asked] == [["n1", "n2", "n3"], ["n1", "n3"]]
    assert [row(one) for one in result.hosts] == [
        (HostStatus.OK, None, 2, 1),
        (HostStatus.FAILED, FailureKind.TASK_FAILED, 1, 0),
        (HostStatus.OK, None, 2, 0),
    ]
    assert play({"n1": [SAME]}, cut=0)[0].message == "", "what went wrong is over"


def test_a_second_try_that_is_cut_off_leaves_what_the_first_said() -> None:
    assert row(play({"n1": [AWAY, SAME]}, cut=1)[0].hosts[0]) == (HostStatus.UNREACHABLE, FailureKind.NETWORK, 2, 0)


@pytest.mark.parametrize("said", ["E: dpkg was interrupted, you must manually run 'dpkg --configure -a'", "error: rpmdb: damaged"])
def test_a_broken_package_manager_is_permanent(said: str) -> None:
    result, asked = play({"n1": [{"event": "runner_on_failed", "res": {"msg": f"package socat: {said}"}}]})

    assert (result.hosts[0].kind, len(asked)) == (FailureKind.PACKAGE_MANAGER, 1)
