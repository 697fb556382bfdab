"""Commands about inventories and host keys: what they print, write and refuse."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from workflows.cli.main import run

Call = Callable[..., tuple[int, str, str]]
INVENTORY = """
[all:vars]
http_proxy=http://px:3128
[masters]
sv1 ansible_host=127.0.0.1 ansible_port=1 ansible_become_password=canary-3
[nodes]
w[1:2]
"""


PROXIED = """apiVersion: bringup/v1
kind: Cluster
name: x
owner: tests@example.org
revision: "1"
hosts: {servers: {role: server, ranges: s1, addresses: {start: 192.0.2.1}}}
ssh: {http_proxy: "http://127.0.0.1:PORT", LOGIN}
"""


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Runs one command line in a folder with an inventory: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text(INVENTORY)

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def test_init_from_an_inventory_validates_and_says_what_is_missing(call: Call) -> None:
    code, out, _ = call("init", "--from-inventory", "hosts")

    assert code == 0
    assert "wrote cluster.yaml and cluster.schema.json: 3 hosts in 2 groups" in out
    assert "note: ansible_become_password of sv1: secrets are given by reference" in out
    assert "note: variables http_proxy: say them as proxy: {http: http://HOST:PORT, no_proxy: [.example.org]}" in out
    assert "canary-3" not in out + Path("cluster.yaml").read_text()
    assert call("validate", "cluster.yaml")[0] == 0
    assert call("init", "--from-inventory", "hosts")[0] == 64, "never over a file"


def test_init_says_whom_it_asks_where_an_inventory_is_a_program(call: Call) -> None:
    Path("cloud").write_text('#!/bin/sh\necho \'{"masters": {"hosts": ["sv1"]}}\'\n')
    Path("cloud").chmod(0o755)

    code, out, error = call("init", "cloud.yaml", "--from-inventory", "cloud")

    assert code == 0, error
    assert out.splitlines()[0] == "asking cloud for its hosts, for at most 120 s"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["init", "x.yaml", "--from-inventory", "nowhere"], "there is no inventory"),
        (["init", "x.yaml", "--from-inventory", "hosts", "--servers", "kings"], "the inventory has no group kings"),
        (["init", "x.yaml", "--servers", "masters"], "--from-inventory PATH"),
        (["inventory", "three-hosts", "-o", "toml"], "toml"),
        (["host-keys", "three-hosts", "--replace", "n9"], "there is no host n9"),
    ],
)
def test_usage_errors(call: Call, arguments: list[str], said: str) -> None:
    code, out, err = call(*arguments)

    assert code == 64
    assert said in err
    assert not out
    assert not Path("x.yaml").exists()


def test_an_inventory_is_not_written_over_its_spec(call: Call) -> None:
    Path("cluster.yaml").write_text(PROXIED.replace("PORT", "3128").replace(", LOGIN", ""))
    before = Path("cluster.yaml").read_text()

    code, _, err = call("inventory", "--out", "./cluster.yaml")

    assert (code, Path("cluster.yaml").read_text()) == (64, before)
    assert "is the spec itself" in err


def test_inventory_to_the_terminal_and_to_a_file(call: Call) -> None:
    code, out, _ = call("inventory", "h200-16")
    assert code == 0
    assert set(yaml.safe_load(out)["all"]["children"]) >= {"rke2_servers", "rke2_agents", "gpu"}
    assert call("inventory", "h200-16", "-o", "ini", "--out", "made.ini")[1] == "wrote 19 hosts to made.ini\n"
    assert "[gpu]" in Path("made.ini").read_text()


def test_a_proxy_before_the_hosts_is_named_where_it_fails(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    login = "http_proxy_user: site, http_proxy_password: {env: SSH_PROXY}"
    spec = PROXIED.replace("PORT", str(port)).replace("LOGIN", login)
    Path("cluster.yaml").write_text(spec)
    code, out, err = call("host-keys")
    assert (code, "the environment variable SSH_PROXY is not set" in err) == (64, True)

    monkeypatch.setenv("SSH_PROXY", "canary-3")
    code, out, err = call("host-keys", "--out", str(tmp_path / "known"), "-o", "json")
    assert code == 75
    assert [row["said"] for row in json.loads(out)] == [f"HTTP proxy http://127.0.0.1:{port} is not reached: Connection refused"]
    assert "canary-3" not in out + err


def test_a_host_that_does_not_answer_is_temporary(call: Call, tmp_path: Path) -> None:
    assert call("init", "--from-inventory", "hosts", "--servers", "masters", "--group", "masters")[0] == 0
    code, out, _ = call("host-keys", "--out", str(tmp_path / "known"))

    assert code == 75
    assert "no host key came from port 1" in out
    assert not (tmp_path / "known").exists()


def test_files_of_an_example_lie_where_one_works_and_not_among_what_is_shipped(call: Call, tmp_path: Path) -> None:
    Path("three-hosts").mkdir()  # as `bringup render three-hosts --out three-hosts` makes one

    code, out, _ = call("inventory", "three-hosts")

    assert code == 0
    assert yaml.safe_load(out)["all"]["vars"]["ansible_ssh_private_key_file"] == str(tmp_path / "id_ed25519")
    assert f"UserKnownHostsFile={tmp_path / 'known_hosts'}" in out


def test_a_machine_without_openssh_is_told_so(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = call("host-keys", "three-hosts")

    assert code == 64
    assert "this machine has no ssh" in err
    assert "openssh-client" in err


@pytest.mark.parametrize("line", ["host-keys", "inventory", "run --until os_prep", "reset --yes"])
@pytest.mark.parametrize(
    "field", ["key: {file: ~nobody-0/id}", "known_hosts: ~nobody-0/known", "sudo_password: {file: ~nobody-0/pw}"]
)
def test_a_home_of_nobody_is_a_file_that_is_not_there(call: Call, monkeypatch: pytest.MonkeyPatch, line: str, field: str) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(Path("home").absolute()))
    Path("cluster.yaml").write_text(
        PROXIED.replace('http_proxy: "http://127.0.0.1:PORT", LOGIN', field).replace("192.0.2", "127.0.9")
    )

    code, out, err = call(*line.split())

    assert "bug:" not in err
    if line not in ("host-keys", "inventory"):
        assert code == 64
        assert "~nobody-0" in err
    assert code in (0, 64, 75), out
