"""Steps of a server on its cluster's way back, by the module that does them, with tools that say what they are asked."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.playbooks.library import PLAYBOOKS, loaded

ROLE = PLAYBOOKS / "roles/rke2"
IP = """#!/bin/sh
# addresses are the lines of a file
case "$*" in
    "-oneline address show") cat @ROWS@ ;;
    "address delete "*) [ -e @STUCK@ ] || { sed "\\,inet $3 ,d" @ROWS@ > @ROWS@.new && mv @ROWS@.new @ROWS@; } ;;
    *) exit 1 ;;
esac
"""
OWN = "2: eth0    inet 192.0.2.11/24 brd 192.0.2.255 scope global eth0"
VIRTUAL = "2: eth0    inet 192.0.2.10/32 scope global eth0"
NEAR = "2: eth0    inet 192.0.2.100/32 scope global eth0"


@pytest.fixture
def act(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Do a step of the module, with the test's folder before all others where tools are."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    module = loaded("rke2_rollback")

    def step(**words: Any) -> bool:
        asked = {name: option.get("default", "") for name, option in module.SPEC.items()} | words
        return bool(module.act(asked))

    return step


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(("before", "changed"), [([OWN, VIRTUAL, NEAR], True), ([OWN, NEAR], False)])
def test_a_stopped_server_answers_at_the_virtual_address_no_longer(
    act: Callable[..., bool], tmp_path: Path, before: list[str], changed: bool
) -> None:
    rows = tmp_path / "rows"
    rows.write_text("\n".join(before) + "\n")
    tool(tmp_path, "ip", IP.replace("@ROWS@", str(rows)).replace("@STUCK@", str(tmp_path / "stuck")))
    assert act(state="silenced", virtual_address="192.0.2.10") is changed
    assert rows.read_text().splitlines() == [OWN, NEAR]


@pytest.mark.parametrize(("code", "said"), [(0, ""), (3, "rke2 ended with 3: it says no")])
def test_etcd_is_set_back_as_by_a_login_that_is_not_hardened(tmp_path: Path, code: int, said: str) -> None:
    """RKE2 under umask 077 closes etcd's files to etcd's own user, and waits for it until the time is over."""
    tool(tmp_path, "rke2", f'#!/bin/sh\numask > {tmp_path}/umask\necho "$@" > {tmp_path}/words\necho it says no\nexit {code}\n')
    before = os.umask(0o077)
    try:
        with pytest.raises(Exception, match=said) if said else contextlib.nullcontext():
            loaded("rke2_rollback").reset("/snapshots/one", 20, str(tmp_path / "rke2"))
        assert os.umask(0o077) == 0o077, "what the module writes itself says its own mode"
    finally:
        os.umask(before)
    assert (tmp_path / "umask").read_text().strip() == "0022"
    assert (tmp_path / "words").read_text().strip() == "server --cluster-reset --cluster-reset-restore-path=/snapshots/one"


def test_an_address_that_stays_is_told(act: Callable[..., bool], tmp_path: Path) -> None:
    (tmp_path / "rows").write_text(VIRTUAL + "\n")
    (tmp_path / "stuck").touch()
    tool(tmp_path, "ip", IP.replace("@ROWS@", str(tmp_path / "rows")).replace("@STUCK@", str(tmp_path / "stuck")))
    with pytest.raises(Exception, match=r"192\.0\.2\.10/32 on eth0 cannot be removed, and this server would join at itself"):
        act(state="silenced", virtual_address="192.0.2.10")


def test_the_address_goes_once_nothing_holds_it_and_before_anything_starts() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/back_stop.yml").read_text())
    steps = [task.get("rke2_rollback", task.get("rke2_release", task.get("ansible.builtin.command"))) for task in tasks]
    told = [(step.get("state") or step["argv"][0]) for step in steps if step]
    assert told == ["begun", "/usr/local/bin/rke2-killall.sh", "silenced", "restored"]
