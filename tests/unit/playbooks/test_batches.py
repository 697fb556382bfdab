"""Agents go in batches, and a batch that fails as a whole does not keep the others from theirs: run by Ansible, with a role that
only says what it does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
SAY = {"ansible.builtin.copy": {"dest": "{{ said }}/{{ inventory_hostname }}", "content": ""}}
FAIL = {"ansible.builtin.fail": {"msg": "its pods do not go"}, "when": "inventory_hostname == 'a1'"}


def role(folder: Path, group: str) -> None:
    """A role rke2 that sorts all hosts into a group, and fails on the first of them."""
    parts = {
        "helper": [],
        "look": [{"ansible.builtin.group_by": {"key": group}}],
        "back_look_agent": [{"ansible.builtin.group_by": {"key": "rke2_going_back"}}],
        "back_agent": [FAIL, SAY],
        "main": [FAIL, SAY],
    }
    (folder / "roles/rke2/tasks").mkdir(parents=True)
    for name, tasks in parts.items():
        (folder / f"roles/rke2/tasks/{name}.yml").write_text(yaml.safe_dump(tasks))


@pytest.mark.parametrize(
    ("playbook", "group"),
    [("rke2_agent", "rke2_upgrading"), ("rke2_agent", "rke2_joining"), ("rke2_agent_rollback", "rke2_only_read")],
)
def test_a_batch_that_fails_stops_no_other(tmp_path: Path, playbook: str, group: str) -> None:
    role(tmp_path, group)
    for path in PLAYBOOKS.glob("rke2_agent*.yml"):
        shutil.copy(path, tmp_path)
    (tmp_path / "said").mkdir()
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    groups = {"helpers": {"hosts": {}}, "played": {"hosts": dict.fromkeys(("a1", "a2", "a3"))}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": local, "children": groups}}))
    told = {"said": str(tmp_path / "said"), "rke2_upgrade_batch": 1, "rke2_join_batch": 1}

    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("ansible-playbook"), tmp_path / f"{playbook}.yml"),
            *("--inventory", tmp_path / "hosts.json", "--extra-vars", json.dumps(told)),
        ],
        env={**os.environ, "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert sorted(path.name for path in (tmp_path / "said").iterdir()) == ["a2", "a3"], done.stdout + done.stderr
    assert done.returncode != 0
    assert "its pods do not go" in done.stdout + done.stderr
