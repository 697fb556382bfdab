"""One silent host never costs the others their play: whatever waits on a host ends before the play's own longest silence."""

import configparser
from typing import Any

import pytest
import yaml
from ansible.module_utils import host_lock

from steps.clients.ansible import ssh_plays
from steps.contract.host_play import PlayHost, PlayRequest
from tests.unit.playbooks.library import PLAYBOOKS
from workflows.plan.compiler import OPEN_SECONDS

SILENCE = PlayRequest(playbook="os_prep", hosts=(PlayHost(name="n1", address="192.0.2.1"),)).idle_timeout_seconds


def defaults(role: str) -> dict[str, Any]:
    return dict(yaml.safe_load((PLAYBOOKS / "roles" / role / "defaults" / "main.yml").read_text()))


def test_what_waits_on_one_host_ends_before_the_whole_play_does() -> None:
    settings = configparser.ConfigParser()
    settings.read(PLAYBOOKS / "ansible.cfg")
    of_task = settings.getint("defaults", "task_timeout")
    assert of_task < SILENCE

    reboot = defaults("os_prep")["os_prep_reboot_seconds"] + 60
    assert reboot < SILENCE, "role os_prep gives the task itself one minute more"
    assert defaults("os_prep")["os_prep_timeout"] < SILENCE
    assert min(of_task, defaults("os_prep")["os_prep_timeout"]) > host_lock.SECONDS, "who waits for another module can still say so"
    waits = defaults("rke2")
    assert max(waits["rke2_ready_seconds"], waits["rke2_drain_seconds"]) < of_task


@pytest.mark.parametrize("seconds", [15, OPEN_SECONDS, 600, 1800, 4200])
def test_what_hangs_on_one_host_of_a_short_play_ends_before_it_too(seconds: int) -> None:
    of_task = ssh_plays.task_seconds(PLAYBOOKS, PlayRequest(playbook="identify", hosts=(), timeout_seconds=seconds))

    assert 0 < of_task <= 0.8 * seconds
    assert of_task <= 1200
