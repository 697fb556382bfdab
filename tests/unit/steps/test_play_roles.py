"""The verb play with roles of a site: which hosts take part, how they are reached, and what is recorded."""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.contract.fleet import Host
from steps.contract.task import Task, Verb
from tests.unit.steps.conftest import host

ROLE = {"name": "hardening", "file": "role_hardening.tar.gz.b64", "digest": f"sha256:{'ab' * 32}"}
RAN = {"role": ROLE["name"], "digest": ROLE["digest"]}


@pytest.fixture
def asked(desk: Any) -> Iterator[list[dict[str, Any]]]:
    """The requests of plays that came in; stand-ins for hosts answer: all come to the end of the role but `gpu2`."""
    requests: list[dict[str, Any]] = []

    class Take(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            for one in requests[-1]["hosts"]:
                failed = one["name"] == "gpu2"
                data = {
                    "host": one["name"],
                    "task": "Run",
                    "res": {"msg": "no"} if failed else {"observation": RAN, "changed": True},
                }
                event = {"event": "runner_on_failed" if failed else "runner_on_ok", "event_data": data}
                self.wfile.write(json.dumps(event).encode() + b"\n")
            ends = {"ok": {}, "failures": {}, "processed": {}}
            for one in requests[-1]["hosts"]:
                ends["failures" if one["name"] == "gpu2" else "ok"][one["name"]] = 1
                ends["processed"][one["name"]] = 1
            stats = {"event": "playbook_on_stats", "event_data": ends}
            self.wfile.write(json.dumps(stats).encode() + b"\n")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Take) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        desk.environment |= {SIMULATOR: f"http://127.0.0.1:{server.server_address[1]}", SIMULATOR_TOKEN: "t"}
        yield requests
        server.shutdown()
        thread.join()


def task(name: str, select: str = "all", **more: Any) -> Task:
    ssh = {"user": "root", "proxy": {"HTTP_PROXY": "http://proxy:3128"}, "jump": {"address": "b2", "jump": {"address": "b1"}}}
    arguments = {"playbook": "site_role", "ssh": ssh, "gate": "site_roles/ran", "select": select, "role": ROLE, **more}
    return Task(stage="rke2", name=name, verb=Verb.PLAY, arguments=arguments, expectations=RAN)


def names(request: dict[str, Any]) -> list[str]:
    return [one["name"] for one in request["hosts"]]


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
    assert asked[0]["variables"]["bringup_proxy"] == {"HTTP_PROXY": "http://proxy:3128"}
    assert asked[0]["role"]["file"].endswith("/tasks/role_hardening.tar.gz.b64")
