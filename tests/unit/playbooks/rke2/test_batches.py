"""Agents go in batches, and a batch that fails as a whole does not keep the others from theirs: run by Ansible, with a role that
only says what it does."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.clients.ansible import workspace
from steps.contract.host_play import ENDED
from tests.unit.playbooks import ansible_plays
from tests.unit.playbooks.library import PLAYBOOKS

SAY = {"ansible.builtin.copy": {"dest": "{{ said }}/{{ inventory_hostname }}", "content": ""}}
FAIL = {"ansible.builtin.fail": {"msg": "its pods do not go"}, "when": "inventory_hostname == 'a1'"}
AWAY = {
    "ansible.builtin.ping": None,
    "vars": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
    "when": "inventory_hostname == 'a1'",
}
"""Nobody answers there."""


def role(folder: Path, group: str, fault: dict[str, Any]) -> None:
    """A role rke2 that sorts all hosts into a group, and has a fault on the first of them."""
    parts = {
        "helper": [],
        "look": [{"ansible.builtin.group_by": {"key": group}}],
        "back_look_agent": [{"ansible.builtin.group_by": {"key": "rke2_going_back"}}],
        "back_agent": [fault, SAY],
        "main": [fault, SAY],
    }
    (folder / "roles/rke2/tasks").mkdir(parents=True)
    for name, tasks in parts.items():
        (folder / f"roles/rke2/tasks/{name}.yml").write_text(yaml.safe_dump(tasks))


def played(folder: Path, playbook: str) -> tuple[list[str], list[str], str]:
    """The hosts on which the role came to its end, those of which the playbook says that they did, and all that Ansible said."""
    for path in PLAYBOOKS.glob("rke2_agent*.yml"):
        shutil.copy(path, folder)
    (folder / "said").mkdir()
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    groups = {"helpers": {"hosts": {}}, "played": {"hosts": dict.fromkeys(("a1", "a2", "a3"))}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"vars": local, "children": groups}}))
    told = {"said": str(folder / "said"), "rke2_upgrade_batch": 1, "rke2_join_batch": 1}
    done = ansible_plays.play(folder / f"{playbook}.yml", folder / "hosts.json", told, "-v")
    output = done.stdout + done.stderr
    assert done.returncode != 0, output
    ended = re.findall(rf'^ok: \[(\w+)\] => .*"{ENDED}": true', output, re.MULTILINE)
    return sorted(path.name for path in (folder / "said").iterdir()), sorted(ended), output


@pytest.mark.parametrize(
    ("playbook", "group", "ended"),
    [
        ("rke2_agent", "rke2_upgrading", ["a2", "a3"]),
        ("rke2_agent", "rke2_joining", ["a2", "a3"]),
        ("rke2_agent_rollback", "rke2_only_read", ["a1", "a2", "a3"]),
    ],
)
def test_a_batch_that_fails_stops_no_other(tmp_path: Path, playbook: str, group: str, ended: list[str]) -> None:
    role(tmp_path, group, FAIL)
    came, said, output = played(tmp_path, playbook)

    assert (came, said) == (["a2", "a3"], ended), output
    assert "its pods do not go" in output


@pytest.mark.parametrize("group", ["rke2_upgrading", "rke2_joining"])
def test_of_those_that_had_no_turn_after_a_batch_that_is_away_nothing_says_that_they_came_to_the_end(
    tmp_path: Path, group: str
) -> None:
    role(tmp_path, group, AWAY)
    came, said, output = played(tmp_path, "rke2_agent")

    assert "UNREACHABLE" in output
    assert (came, said) == ([], []), output


def test_every_playbook_that_can_end_before_a_host_had_its_turn_says_of_each_that_it_came_to_the_end() -> None:
    several = [path.stem for path in PLAYBOOKS.glob("*.yml") if len(yaml.safe_load(path.read_text())) > 1]
    assert len(several) > 2
    assert [name for name in several if not workspace.marks_ends(name)] == []
