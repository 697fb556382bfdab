"""The verb play hands helpers on: servers that it may ask, which are neither played, nor set aside."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.contract import paths
from steps.contract.run_records import Header, header_key
from steps.contract.task import Task, Verb
from tests.unit.answered_plays import answered
from tests.unit.steps.conftest import host

GONE = {"unreachable": True, "msg": "ssh: connect to host"}
"""Every host is gone: this is about what was asked for, not about what became of it."""


@pytest.fixture
def asked(desk: Any) -> Iterator[list[dict[str, Any]]]:
    """The requests of plays that came in."""

    def gone(hosts: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        return (("runner_on_unreachable", {"host": name, "task": "Look", "res": GONE}) for name in hosts)

    with answered(gone) as (url, requests):
        desk.environment |= {SIMULATOR: url, SIMULATOR_TOKEN: "t"}
        yield requests


def task(select: str) -> Task:
    arguments = {
        "playbook": f"rke2_{select}",
        "ssh": {"user": "root"},
        "gate": f"rke2/{select}s",
        "select": select,
        "helpers": "server",
    }
    expectations = {"version": "v1.35.7+rke2r1", "service": f"rke2-{select}"}
    return Task(stage="rke2", name=f"{select}s", verb=Verb.PLAY, arguments=arguments, expectations=expectations)


def test_the_order_of_key_exchanges_that_a_spec_asks_for_reaches_the_play(desk: Any, asked: list[dict[str, Any]]) -> None:
    for ssh in ({"post_quantum": True}, {}):
        one = task("agent")
        assert desk.run(msgspec.structs.replace(one, arguments=one.arguments | {"ssh": ssh})).returncode == 0
    assert (asked[0]["post_quantum"], "post_quantum" in asked[-1]) == (True, False)


def test_keys_of_a_first_contact_are_kept_for_the_cluster_where_all_its_runs_find_them(
    desk: Any, asked: list[dict[str, Any]]
) -> None:
    one = task("agent")
    allowed = msgspec.structs.replace(one, arguments=one.arguments | {"ssh": {"host_keys": "accept-new"}})
    lost = desk.run(allowed)
    assert (lost.returncode, asked) == (64, []), lost.stderr
    assert "which cluster it is about" in lost.stderr
    for run in ("r1", "r2"):
        header = Header(run=run, engine="local", plan="p", cluster="rack-7", owner="o", revision="1")
        desk.store.write(header_key(run), msgspec.json.encode(header))
        desk.environment[paths.RUN] = run
        assert desk.run(allowed).returncode == 0
    folders = {request["met"] for request in asked}
    assert folders == {str(desk.store.root / "met/rack-7")}
    assert Path(folders.pop()).is_dir()
    assert "met" not in (desk.run(one), asked[-1])[1]


def test_servers_help_agents_and_no_server_helps_itself(desk: Any, asked: list[dict[str, Any]]) -> None:
    desk.hosts([host("sv1", role="server"), host("sv2", role="server"), host("gpu1")])
    assert desk.run(task("agent")).returncode == 0
    assert [one["name"] for one in asked[0]["hosts"]] == ["gpu1"]
    assert [one["name"] for one in asked[0]["helpers"]] == ["sv1", "sv2"]

    assert desk.run(task("server")).returncode == 0
    assert [one["name"] for one in asked[-1]["hosts"]] == ["sv1", "sv2"]
    assert "helpers" not in asked[-1]


def test_only_a_play_that_is_told_so_goes_on_without_a_cluster_that_is_down(desk: Any, asked: list[dict[str, Any]]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        cluster = {"server": f"https://127.0.0.1:{taken.getsockname()[1]}", "insecure-skip-tls-verify": True}
        down = {
            "clusters": [{"name": "a", "cluster": cluster}],
            "users": [{"name": "a", "user": {"token": "t"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        (desk.root / "secrets").mkdir(exist_ok=True)
        (desk.root / "secrets/kubeconfig").write_text(json.dumps(down))
        desk.hosts([host("sv1", role="server")])
        one = task("server")
        assert desk.run(one).returncode == 75
        assert asked == [], "it may be another run's, which nobody can tell now"
        assert desk.run(msgspec.structs.replace(one, arguments=one.arguments | {"may_be_down": True})).returncode == 0
        assert [host["name"] for host in asked[0]["hosts"]] == ["sv1"]
