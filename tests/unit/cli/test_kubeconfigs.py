"""Kubeconfigs that cannot be used: every command says what is wrong with one, and where another is to be named."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.engines.argo.test_streams import serving, write_access
from workflows.engines.argo import run_memory
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.folders import StateFolder

GOOD: dict[str, Any] = {
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "c",
}
COMMANDS = {
    "status": ("status", "one", "--home-kubeconfig", "config"),
    "run": ("run", "own.yaml", "--engine", "argo", "--home-kubeconfig", "config"),
    "schedule": ("schedule", "suspend", "one", "--home-kubeconfig", "config"),
    "rehearse": ("rehearse", "own.yaml", "--kubeconfig", "config"),
}


def said(done: Any) -> tuple[str, str]:
    """Sentence and hint of a refusal."""
    assert done.code == 64, done.text
    sentence, hint = done.err.splitlines()
    return sentence.removeprefix("error: "), hint.removeprefix("hint: ")


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_wrong_is_one_sentence(machine: Any, small: str, command: str) -> None:
    (machine.folder / "own.yaml").write_text(small)
    ca = {"server": "https://127.0.0.1:9", "certificate-authority-data": "Q0E="}
    (machine.folder / "config").write_text(yaml.safe_dump(GOOD | {"clusters": [{"name": "c", "cluster": ca}]}))
    sentence, hint = said(machine.call(*COMMANDS[command]))
    assert sentence.startswith("kubeconfig ")
    assert "config: certificate-authority is no certificate that can be read" in sentence
    assert hint.startswith("give certificates and keys as PEM")
    (machine.folder / "config").write_text(yaml.safe_dump(GOOD | {"users": [{"name": "u", "user": None}]}))
    sentence, hint = said(machine.call(*COMMANDS[command]))
    assert sentence.endswith("config: entry 'u' under users has no mapping user")
    assert ("--kubeconfig" if command == "rehearse" else "--home-kubeconfig") in hint


def test_a_remembered_kubeconfig_that_is_gone(machine: Any) -> None:
    folder = StateFolder(Path(machine.home)).run("one")
    run_memory.write(folder, run_memory.RunMemory(where=HomeAddress(kubeconfig="/gone/config")))
    for command in ("status", "watch", "pull"):
        sentence, hint = said(machine.call(command, "one"))
        assert sentence == "kubeconfig /gone/config: No such file or directory"
        assert "--home-kubeconfig" in hint


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_that_answers_in_place_of_an_api_server_may_go_away(machine: Any, small: str, command: str) -> None:
    (machine.folder / "own.yaml").write_text(small)
    for name in ("id_ed25519", "known_hosts"):
        (machine.folder / name).write_text("nobody needs it\n")
    with serving() as server:
        write_access(server, machine.folder).rename(machine.folder / "config")
        server.answers = [(200, b"<html>log in again</html>")]
        done = machine.call(*COMMANDS[command])
    assert (done.code, "bug:" in done.err) == (75, False), done.text
    assert "a proxy" in done.err
    assert "load balancer" in done.err
    assert "JSON is malformed" in done.err
