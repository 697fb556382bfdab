"""Work of others on the machines of a factory: the play that asks, and the reasons not to rebuild that its facts are."""

from pathlib import Path
from typing import Any

import pytest

from steps.contract.host_play import HostOutcome, HostStatus
from tests.unit.factories.conftest import STARTER
from workflows.app.factories import foreign_processes, host_plays
from workflows.spec import load_factory

HOST = {"slurmd": False, "users": {}, "rke2": True, "boot": "1"}


def host(name: str, facts: dict[str, Any], message: str = "", status: HostStatus = HostStatus.OK) -> HostOutcome:
    return HostOutcome(host=name, status=status, facts=facts, message=message)


def problems(facts: dict[str, Any], message: str = "", status: HostStatus = HostStatus.OK) -> list[tuple[str, bool]]:
    outcome = host("factory02", facts, message, status)
    return [(reason.problem, reason.forcible) for reason in foreign_processes.refusals_of(outcome)]


def test_slurmd_and_each_user_are_named_with_their_host() -> None:
    assert problems({**HOST, "slurmd": True, "users": {"ada": 1, "bob": 12}}) == [
        ("factory02 runs slurmd, so jobs may be on it", False),
        ("factory02 runs 12 processes of user bob", False),
        ("factory02 runs 1 process of user ada", False),
    ]
    many = {f"user{number}": 1 for number in range(8)}
    assert problems({**HOST, "users": many})[-1] == ("factory02 runs processes of 3 more users", False)


def test_an_idle_machine_is_no_reason() -> None:
    assert problems(HOST) == []


@pytest.mark.parametrize(
    "facts", [{}, {"users": {}}, {**HOST, "slurmd": "no"}, {**HOST, "users": {"ada": "many"}}, {"slurmd": False}]
)
def test_a_machine_that_does_not_say_is_a_reason_that_an_admin_may_override(facts: dict[str, Any]) -> None:
    expected = ("factory02 does not say whose processes run on it: Connection timed out", True)
    assert problems(facts, "Connection timed out", HostStatus.UNREACHABLE) == [expected]


def test_a_node_whose_builds_nobody_knows_is_a_reason_that_an_admin_may_override() -> None:
    bare = host("factory01", {**HOST, "rke2": False})
    assert list(foreign_processes.unknown_builds([bare, host("factory03", {}, "no route")])) == []
    reason, volumes = foreign_processes.unknown_builds([bare, *(host(f"factory0{number}", HOST) for number in range(2, 9))])
    assert reason.problem.startswith(
        "factory02, factory03, factory04, factory05, factory06 and others have RKE2, and no run of this"
    )
    assert (reason.forcible, reason.loses_bytes) == (True, False)
    assert (volumes.forcible, volumes.loses_bytes) == (True, True), "a reason for the builds gives no bytes up"


def test_the_play_reaches_machines_as_their_spec_says(tmp_path: Path) -> None:
    ssh = "ssh:\n  port: 2222\n  jump_host: ops@gate.example.org\n"
    text = STARTER.read_text().replace("ssh:\n", ssh)
    assert text.count("jump_host") == 1
    cluster = load_factory(text).cluster
    (tmp_path / "known_hosts").write_text("")
    request = host_plays.request(cluster, tmp_path, foreign_processes.PLAYBOOK, foreign_processes.SECONDS)
    assert [host.name for host in request.hosts] == ["factory01", "factory02", "factory03", "factory04"]
    first = request.hosts[0]
    assert (first.address, first.port, first.user, first.key_path) == ("10.20.0.11", 2222, "root", str(tmp_path / "ssh_key"))
    assert first.jump is not None
    assert (first.jump.address, first.jump.user, first.jump.key_path) == ("gate.example.org", "ops", first.key_path)
    assert request.known_hosts == str(tmp_path / "known_hosts")
