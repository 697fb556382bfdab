"""Founding or joining a cluster: Ansible runs the role up to the point where the course of a server is decided."""

import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.unit.playbooks import ansible_plays
from tests.unit.playbooks.library import PLAYBOOKS
from tests.unit.served import served

FIRST, OTHER = "127.55.0.1", "127.55.0.2"
PLAY = """
- hosts: sv1
  vars: {rke2_kind: server}
  tasks:
    - ansible.builtin.include_role: {name: rke2, tasks_from: see, public: true}
    - ansible.builtin.copy: {dest: "{{ said }}", content: "{{ rke2_course }} {{ rke2_join_address }}"}
"""


JOIN = """
- hosts: played
  vars: {rke2_kind: server}
  tasks:
    - ansible.builtin.include_role: {name: rke2, tasks_from: see}
- hosts: sv2
  vars: {rke2_kind: server}
  tasks:
    - ansible.builtin.include_role: {name: rke2, tasks_from: join}
"""

SAY = """
- hosts: sv1
  vars: {rke2_kind: server}
  vars_files: ["{{ role }}/defaults/main.yml", "{{ role }}/vars/main.yml"]
  tasks:
    - ansible.builtin.copy: {dest: "{{ said }}", content: "{{ rke2_course }} {{ rke2_join_config.server }}"}
"""


class Pong(BaseHTTPRequestHandler):
    """A supervisor's /ping."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"pong")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[None]:
    """Another server whose supervisor answers, and that the play cannot see."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate for a supervisor")
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x -keyout key -out cert"
    subprocess.run(["openssl", *request.split()], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with ThreadingHTTPServer((OTHER, 9345), Pong) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        with served(server):
            yield


def course(folder: Path, *, aside: bool = False) -> str:
    """Return course and join address of a bare first server, alone in the play; `aside` says that the other server is left out."""
    hosts = {"sv1": {"bringup_address": FIRST}} | ({} if aside else {"sv2": {"bringup_address": OTHER}})
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    groups = {"helpers": {"hosts": {}}, "played": {"hosts": dict.fromkeys(hosts)}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"vars": common, "hosts": hosts, "children": groups}}))
    (folder / "play.yml").write_text(PLAY)
    told: dict[str, object] = {"rke2_version": "v1.35.7+rke2r1", "rke2_registration_address": FIRST, "rke2_first_server": "sv1"}
    told |= {"rke2_server_addresses": [FIRST, OTHER]} if aside else {}
    told["said"] = str(folder / "said")
    done = ansible_plays.play(folder / "play.yml", folder / "hosts.json", told)
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "said").read_text()


def test_a_bare_first_server_founds_a_cluster_where_nobody_has_one(tmp_path: Path) -> None:
    assert course(tmp_path) == f"rke2_founding {FIRST}"


@pytest.mark.usefixtures("supervisor")
@pytest.mark.parametrize("aside", [False, True], ids=["not reached", "set aside"])
def test_a_bare_first_server_joins_the_cluster_of_a_server_that_we_do_not_see(tmp_path: Path, aside: bool) -> None:
    assert course(tmp_path, aside=aside) == f"rke2_joining {OTHER}"


def joining(folder: Path, **hosts: dict[str, object]) -> str:
    """Return the output of a play in which a bare second server cannot join any cluster; `hosts` are the others in the play."""
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    every = {"sv2": {"bringup_address": OTHER}} | hosts
    groups = {"helpers": {"hosts": {}}, "played": {"hosts": dict.fromkeys(every)}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"vars": common, "hosts": every, "children": groups}}))
    (folder / "play.yml").write_text(JOIN)
    told: dict[str, object] = {"rke2_version": "v1.35.7+rke2r1", "rke2_registration_address": FIRST, "rke2_first_server": "sv1"}
    told |= {"rke2_server_addresses": [FIRST, OTHER], "rke2_ready_seconds": 1}
    done = ansible_plays.play(folder / "play.yml", folder / "hosts.json", told)
    assert done.returncode != 0
    return " ".join((done.stdout + done.stderr).split())


def test_a_server_that_could_only_wait_for_one_that_is_away_names_it_at_once(tmp_path: Path) -> None:
    said = f"there is no cluster to join: no supervisor answers on port 9345 of {FIRST}, and sv1, which is to found the cluster, "
    assert f"{said}takes no part (it is set aside, or failed before): see to sv1 first" in joining(tmp_path)
    away = {"bringup_address": FIRST, "ansible_connection": "ssh", "ansible_host": FIRST, "ansible_port": 1}
    assert f"{said}was not reached: see to sv1 first" in joining(tmp_path, sv1=away)


def test_a_server_waits_for_one_that_is_there_to_found_the_cluster(tmp_path: Path) -> None:
    said = joining(tmp_path, sv1={"bringup_address": FIRST})
    assert f"not ready after 1 s: https://{FIRST}:9345" in said


@pytest.mark.usefixtures("supervisor")
def test_a_server_joins_a_cluster_that_answers_whoever_is_to_found_one(tmp_path: Path) -> None:
    hosts = {"sv3": {"bringup_address": "127.55.0.3"}}
    said = joining(tmp_path, sv2={"bringup_address": "127.55.0.4"}, **hosts)
    assert f"not ready after 1 s: https://{FIRST}:9345" in said, "the load balancer may lead there in a moment"


STATE = {"joined": True, "ready": True, "enabled": True, "version": "v1.35.7+rke2r1", "restarts": 0}
SHOWN: dict[str, object] = {"observation": STATE, "adopted": False, "pending": False, "half": False, "cleared": False, "pings": ""}
SERVERS = {f"sv{number}": f"127.55.0.{number}" for number in (1, 2, 3)}


@pytest.mark.parametrize(
    ("joined", "away", "servers", "registered", "at"),
    [
        ("127.55.0.2", "", "123", FIRST, "127.55.0.2"),
        ("127.55.0.3", "", "123", FIRST, "127.55.0.3"),
        ("127.55.0.2", "sv2", "123", FIRST, "127.55.0.2"),
        ("127.55.0.2", "sv2", "13", FIRST, "127.55.0.3"),
        ("127.55.0.9", "", "123", FIRST, "127.55.0.2"),
        (FIRST, "", "123", FIRST, "127.55.0.2"),
        ("127.55.0.2", "", "123", "127.55.0.10", "127.55.0.10"),
    ],
    ids=["all are there", "not the first", "it is away", "it is gone", "unknown", "itself", "an address in front of all"],
)
def test_a_server_that_joined_at_another_stays_with_it_while_that_is_one_of_the_cluster(
    tmp_path: Path, joined: str, away: str, servers: str, registered: str, at: str
) -> None:
    """The registration address is the first server's own, and this one is it: replaced, or rolled back by the etcd of another."""
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts: dict[str, dict[str, object]] = {name: {"bringup_address": address} for name, address in SERVERS.items()}
    for name in set(SERVERS) - {away}:
        hosts[name]["rke2_before"] = SHOWN | {"server": f"https://{joined}:9345" if name == "sv1" else ""}
    groups = {"helpers": {"hosts": {}}, "played": {"hosts": dict.fromkeys(hosts)}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": common, "hosts": hosts, "children": groups}}))
    (tmp_path / "play.yml").write_text(SAY)
    told = {"rke2_version": STATE["version"], "rke2_registration_address": registered, "rke2_first_server": "sv1"}
    told |= {"rke2_server_addresses": [SERVERS[f"sv{number}"] for number in servers], "said": str(tmp_path / "said")}
    told["role"] = str(PLAYBOOKS / "roles/rke2")
    done = ansible_plays.play(tmp_path / "play.yml", tmp_path / "hosts.json", told)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "said").read_text() == f"rke2_up https://{at}:9345"
