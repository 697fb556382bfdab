"""The text of config.yaml as Ansible makes it of the role's variables, on hosts where only `ip` is a stand-in."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
REGISTERED = "127.55.0.1"
PLAY = """
- hosts: all
  vars: {rke2_kind: "{{ 'server' if inventory_hostname.startswith('sv') else 'agent' }}"}
  tasks:
    - ansible.builtin.include_role: {name: rke2, tasks_from: see, public: true}
    - ansible.builtin.copy: {dest: "{{ said }}/{{ inventory_hostname }}", content: "{{ rke2_config_text }}"}
"""


def configured(folder: Path, addresses: dict[str, str], **variables: object) -> dict[str, dict[str, Any]]:
    """The config.yaml of each host, by how SSH reaches it."""
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {name: {"bringup_address": address} for name, address in addresses.items()}
    groups = {"helpers": {"hosts": {}}, "played": {"hosts": {}}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"vars": common, "hosts": hosts, "children": groups}}))
    (folder / "play.yml").write_text(PLAY)
    (folder / "said").mkdir()
    told = {"rke2_version": "v1.35.7+rke2r1", "rke2_registration_address": REGISTERED, "said": str(folder / "said")}
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("ansible-playbook"), folder / "play.yml", "--inventory", folder / "hosts.json"),
            *("--extra-vars", json.dumps(told | variables)),
        ],
        env={**os.environ, "PYTHONHASHSEED": "1", "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: yaml.safe_load((folder / "said" / name).read_text()) for name in addresses}


def test_names_of_the_certificate_stand_in_the_order_of_the_spec(tmp_path: Path) -> None:
    names = [f"api-{number}.example.org" for number in range(6)]
    found = configured(tmp_path, {"sv1": REGISTERED}, rke2_tls_san=[REGISTERED, *names])
    assert found["sv1"]["tls-san"] == [REGISTERED, *names], "in another order the next run would restart every server"
