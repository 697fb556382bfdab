"""Hosts and plays leave nothing on this machine, even if they were killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hostlab import lab, profile
from hostlab.census import PLAYS_OF_OTHERS_SECONDS, census, left, plays
from hostlab.lab import Init
from hostlab.waiting import until
from machine import qemu
from machine.disk import Disk

from steps.clients.ansible import playing
from steps.contract.host_play import PlayStatus


def test_nothing_is_left_of_hosts_and_their_plays(up: Any) -> None:
    before = census()
    made = up(3, Init.SYSTEMD, prepared=True)
    there = census()
    assert there["hosts"] == ["n000", "n001", "n002"]
    assert all(there[name] for name in ("links", "mounts", "cgroups", "processes", "folders")), there
    assert playing.play(profile.request(made)).status is PlayStatus.OK

    lab.down()

    assert until(lambda: not left(before), PLAYS_OF_OTHERS_SECONDS), left(before)


@pytest.mark.parametrize(("told", "environment"), [("fleet", {}), ("", {"BRINGUP_STORE": "@/store"})])
def test_a_program_that_outlives_its_test_is_counted_by_the_folder_it_was_told(
    tmp_path: Path, told: str, environment: dict[str, str]
) -> None:
    command = [sys.executable, "-c", "input()", *([str(tmp_path / told)] if told else [])]
    own = {name: value.replace("@", str(tmp_path)) for name, value in environment.items()}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | own, text=True) as child:
        # what has just been started may show no words yet
        seen = until(lambda: [title.split()[:2] for title in census(tmp_path)["programs"]] == [command[:2]], 20)
        child.communicate("\n")

    assert seen
    assert census(tmp_path)["programs"] == []


def test_a_machine_under_qemu_is_counted_while_it_has_power(able: None, tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    (tmp_path / "ssh_host_ed25519_key.pub").write_text("ssh-ed25519 none")
    with qemu.powered(Disk(tmp_path), tmp_path):
        assert until(lambda: [title.split()[0] for title in census(tmp_path)["programs"]] == [qemu.QEMU], 20)

    assert census(tmp_path)["programs"] == []


PLAY = """
import sys, msgspec
from steps.clients.ansible import playing
from steps.contract.host_play import PlayRequest
request = msgspec.json.decode(sys.stdin.buffer.read(), type=PlayRequest)
playing.play(request, on_event=lambda event: print(event.event, flush=True))
"""


def test_the_next_play_removes_what_a_killed_one_left(up: Any) -> None:
    made = up(2, prepared=True)
    before = census()
    environment = os.environ | {"PYTHONPATH": str(Path(playing.__file__).parents[3])}
    with subprocess.Popen([sys.executable, "-c", PLAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(msgspec.json.encode(profile.request(made)))
        child.stdin.close()
        next(line for line in child.stdout if line.startswith(b"runner_on_start"))
        child.send_signal(signal.SIGKILL)
    private = left(before)["folders"]
    assert private, "it had no time to remove its private folder"

    playing.play(profile.request(made))

    assert until(lambda: not set(private) & set(census()["folders"]), PLAYS_OF_OTHERS_SECONDS)
    assert until(lambda: not [title for title in plays() if "ansible-playbook" in title], 30), "it went on alone, and ended"
