"""A host that a reset leaves alone keeps its work too: run by Ansible, with modules that say what a host shows, and were asked."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
PLAY = """
- hosts: played
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact: {rke2_before: {observation: {ready: true}}}
      delegate_to: sv1
      delegate_facts: true
    - ansible.builtin.include_role: {name: rke2_reset}
"""
SHOWN = "#!/bin/sh\necho '@SHOWN@'\n"
ASKED = '#!/bin/sh\ntouch @FILE@\necho \'{"changed": true, "nodes": {}, "refused": {}}\'\n'


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ({"joins": "192.0.2.9"}, "is an agent or server of the cluster at 192.0.2.9"),
        ({"refused": "/var/lib/kubelet leads to /data, where photos lies"}, "leads to /data, where photos lies"),
        ({}, ""),
    ],
    ids=["of another cluster", "a link to where others keep things", "one of ours"],
)
def test_a_host_that_is_left_alone_is_not_drained(tmp_path: Path, shown: dict[str, str], said: str) -> None:
    shutil.copytree(PLAYBOOKS / "roles/rke2_reset", tmp_path / "roles/rke2_reset")
    (tmp_path / "library").mkdir()
    result = {"changed": False, "any": False, "joins": "", "refused": "", "observation": {}} | shown
    (tmp_path / "library/rke2_traces").write_text(SHOWN.replace("@SHOWN@", json.dumps(result)))
    (tmp_path / "library/rke2_nodes").write_text(ASKED.replace("@FILE@", str(tmp_path / "asked")))
    (tmp_path / "play.yml").write_text(PLAY)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    groups = {"helpers": {"hosts": {"sv1": None}}, "played": {"hosts": {"gpu1": None}}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": local, "children": groups}}))

    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("ansible-playbook"), tmp_path / "play.yml", "--inventory", tmp_path / "hosts.json"),
            *("--extra-vars", json.dumps({"rke2_reset_forget": True, "rke2_reset_servers": ["192.0.2.1"]})),
        ],
        env={**os.environ, "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert said in done.stdout + done.stderr
    assert (done.returncode == 0, (tmp_path / "asked").exists()) == (not said, not said), done.stdout + done.stderr
