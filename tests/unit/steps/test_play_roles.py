"""The verb play with roles of a site: which hosts take part, how they are reached, and what is recorded."""

from collections.abc import Iterator
from typing import Any

import pytest

from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.contract.fleet import Host
from steps.contract.task import Task, Verb
from tests.unit.answered_plays import answered, names
from tests.unit.steps.conftest import host

ROLE = {"name": "hardening", "file": "role_hardening.tar.gz.b64", "digest": f"sha256:{'ab' * 32}"}
RAN = {"role": ROLE["name"], "digest": ROLE["digest"]}


def ran(hosts: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All come to the end of the role but `gpu2`."""
    failing = [name for name in hosts if name == "gpu2"]
    for name in hosts:
        failed = name in failing
        result = {"msg": "no"} if failed else {"observation": RAN, "changed": True}
        yield "runner_on_failed" if failed else "runner_on_ok", {"host": name, "task": "Run", "res": result}
    ends = {"ok": [name for name in hosts if name not in failing], "failures": failing, "processed": hosts}
    yield "playbook_on_stats", {column: dict.fromkeys(members, 1) for column, members in ends.items()}


@pytest.fixture
def asked(desk: Any) -> Iterator[list[dict[str, Any]]]:
    """The requests of plays that came in, answered by stand-ins for hosts."""
    with answered(ran) as (url, requests):
        desk.environment |= {SIMULATOR: url, SIMULATOR_TOKEN: "t"}
        yield requests


def task(name: str, select: str = "all", **more: Any) -> Task:
    ssh = {"user": "root", "proxy": {"HTTP_PROXY": "http://proxy:3128"}, "jump": {"address": "b2", "jump": {"address": "b1"}}}
    arguments = {"playbook": "site_role", "ssh": ssh, "gate": "site_roles/ran", "select": select, "role": ROLE, **more}
    return Task(stage="rke2", name=name, verb=Verb.PLAY, arguments=arguments, expectations=RAN)


def test_a_host_that_failed_before_is_left_out_of_what_follows(desk: Any, asked: list[dict[str, Any]]) -> None:
    desk.hosts([host("sv1", role="server"), host("gpu1"), host("gpu2")])

    assert desk.run(task("role_hardening")).returncode == 0
    assert desk.run(task("role_last", passed=["role_hardening"])).returncode == 0

    assert [names(request) for request in asked] == [["sv1", "gpu1", "gpu2"], ["sv1", "gpu1"]]
    verdict = desk.record("rke2", "role_hardening").verdict
    assert verdict.gate == "site_roles/hardening"
    assert {row.node: row.status.value for row in verdict.nodes} == {"sv1": "pass", "gpu1": "pass", "gpu2": "fail"}
    assert desk.record("rke2", "role_hardening").changes == ("sv1: 1 change", "gpu1: 1 change")
    assert desk.record("rke2", "role_last").verdict.is_pass


def test_a_role_of_one_group_and_how_its_hosts_are_reached(desk: Any, asked: list[dict[str, Any]]) -> None:
    far = Host(name="far1", address="far1", group="far", role="agent", variables={"ssh_jump": "ops@b3:2222"})
    desk.hosts([host("gpu1"), far])

    desk.run(task("role_one", select="group-far"))
    desk.run(task("role_all"))

    assert [names(request) for request in asked] == [["far1"], ["gpu1", "far1"]]
    assert asked[1]["hosts"][0]["jump"] == {"address": "b2", "jump": {"address": "b1"}}
    assert asked[1]["hosts"][1]["jump"] == {"address": "b3", "port": 2222, "user": "ops"}
    assert "proxy" not in asked[1]["hosts"][0], "what hosts go through themselves is not SSH's way to them"
    assert asked[0]["variables"]["bringup_proxy"] == {"HTTP_PROXY": "http://proxy:3128"}
    assert asked[0]["role"]["file"].endswith("/tasks/role_hardening.tar.gz.b64")


def test_an_http_proxy_stands_before_the_first_hop(desk: Any, asked: list[dict[str, Any]]) -> None:
    own = {"ssh_http_proxy": "http://[2001:db8::1]:8080"}
    near = Host(name="near1", address="near1", group="near", role="agent", variables=own)
    far = Host(name="far1", address="far1", group="far", role="agent", variables={"ssh_jump": "ops@b3,ops@b4"})
    desk.hosts([host("gpu1"), near, far])
    ssh = {"user": "root", "http_proxy": "http://p1:3128", "http_proxy_user": "site", "http_proxy_password": "ssh_proxy_password"}

    desk.run(task("role_all", ssh=ssh))

    gpu1, near1, far1 = asked[0]["hosts"]
    password = gpu1["proxy"]["password_path"]
    assert password.endswith("/secrets/ssh_proxy_password")
    assert gpu1["proxy"] == {"address": "p1", "port": 3128, "user": "site", "password_path": password}
    assert near1["proxy"] == {"address": "2001:db8::1", "port": 8080, "user": "site", "password_path": password}
    assert "proxy" not in far1
    assert far1["jump"]["address"] == "b4"
    assert "proxy" not in far1["jump"]
    assert far1["jump"]["jump"] == {"address": "b3", "user": "ops", "proxy": gpu1["proxy"]}
