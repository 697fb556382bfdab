"""Commands about inventories and host keys: what they print, write and refuse."""

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
    assert "wrote cluster.yaml: 3 hosts in 2 groups" in out
    assert "note: ansible_become_password of sv1: secrets are given by reference" in out
    assert "note: variables http_proxy: say them as proxy: {http: http://HOST:PORT, no_proxy: [.example.org]}" in out
    assert "canary-3" not in out + Path("cluster.yaml").read_text()
    assert call("validate", "cluster.yaml")[0] == 0
    assert call("init", "--from-inventory", "hosts")[0] == 64, "never over a file"


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


def test_inventory_to_the_terminal_and_to_a_file(call: Call) -> None:
    code, out, _ = call("inventory", "h200-16")
    assert code == 0
    assert set(yaml.safe_load(out)["all"]["children"]) >= {"rke2_servers", "rke2_agents", "gpu"}
    assert call("inventory", "h200-16", "-o", "ini", "--out", "made.ini")[1] == "wrote 19 hosts to made.ini\n"
    assert "[gpu]" in Path("made.ini").read_text()


def test_a_host_that_does_not_answer_is_temporary(call: Call, tmp_path: Path) -> None:
    assert call("init", "--from-inventory", "hosts", "--servers", "masters", "--group", "masters")[0] == 0
    code, out, _ = call("host-keys", "--out", str(tmp_path / "known"))

    assert code == 75
    assert "no host key came from port 1" in out
    assert not (tmp_path / "known").exists()
