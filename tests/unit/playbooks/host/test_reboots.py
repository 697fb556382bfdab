"""Reboots by plays respect inhibitors, such as a package manager at work."""

from typing import Any

import yaml

from tests.unit.playbooks.library import PLAYBOOKS

OVERRIDE = {"-i", "--ignore-inhibitors", "--check-inhibitors=no", "-f", "-ff", "--force"}


def test_no_reboot_overrides_who_holds_it_back() -> None:
    files = sorted(PLAYBOOKS.glob("roles/*/tasks/*.yml"))
    tasks: list[dict[str, Any]] = [task for file in files for task in yaml.safe_load(file.read_text()) or []]
    commands = [str(task["ansible.builtin.reboot"].get("reboot_command", "")) for task in tasks if "ansible.builtin.reboot" in task]
    assert commands, "no play reboots by this task"
    for command in commands:
        assert not OVERRIDE & set(command.split()), command
