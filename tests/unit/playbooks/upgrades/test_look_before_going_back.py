"""The check before servers roll back, run by Ansible with stand-in modules: if one server cannot go back, none is stopped."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.playbooks import ansible_plays
from tests.unit.playbooks.library import PLAYBOOKS

OLD, NEW = "v1.35.7+rke2r1", "v1.36.1+rke2r1"
PLAY = """
- hosts: played
  gather_facts: false
  any_errors_fatal: true
  vars: {rke2_kind: server}
  tasks:
    - ansible.builtin.include_role: {name: rke2, tasks_from: back_look}
- hosts: rke2_going_back
  gather_facts: false
  tasks:
    - ansible.builtin.copy: {dest: "{{ stopped }}", content: ""}
"""
STATE = {"joined": True, "ready": True, "enabled": True, "version": NEW, "restarts": 0}
SEEN = {"changed": False, "observation": STATE, "refusal": "", "pings": "", "server": "", "own_address": "192.0.2.1"}
WAY: dict[str, Any] = {"changed": False, "step": "", "left": NEW, "kept": OLD, "newer": True, "apart": ""}
SNAPSHOT = {"path": "/snapshots/one", "at": 1.0}
ETCD = "/var/lib/rancher/rke2/server/db/etcd"


@pytest.mark.parametrize(
    ("way", "snapshots", "said"),
    [
        ({}, [SNAPSHOT], ""),
        ({}, [], f"no server has a snapshot of etcd from before {NEW}"),
        ({"kept": ""}, [SNAPSHOT], f"runs {NEW} and has kept no release"),
        ({"apart": f"{ETCD} is a disk of its own"}, [SNAPSHOT], f"sv1 has the snapshot, and there {ETCD} is a disk of its own"),
        ({"apart": f"{ETCD} is a disk of its own"}, [], "no server has a snapshot"),
    ],
    ids=["nothing", "no snapshot", "no release", "etcd on a disk of its own", "neither snapshot nor folder"],
)
def test_nothing_is_stopped_where_they_cannot_go_back(
    tmp_path: Path, way: dict[str, str], snapshots: list[dict[str, Any]], said: str
) -> None:
    done = looked(tmp_path, way, snapshots)
    assert said in done, done
    assert ("nothing was stopped" in done, (tmp_path / "stopped").exists()) == (said != "", said == ""), done


def test_a_server_whose_etcd_is_back_already_may_have_it_where_it_likes(tmp_path: Path) -> None:
    assert "nothing was stopped" not in looked(tmp_path, {"step": "done", "apart": f"{ETCD} is a link to /data"}, [SNAPSHOT])
    assert not (tmp_path / "stopped").exists()


def looked(folder: Path, way: dict[str, str], snapshots: list[dict[str, Any]]) -> str:
    """Run the check on one server and return Ansible's output; the play must fail exactly if it says that nothing was stopped."""
    shutil.copytree(PLAYBOOKS / "roles/rke2", folder / "roles/rke2")
    (folder / "library").mkdir()
    for name, shown in (("rke2_status", SEEN), ("rke2_rollback", WAY | way | {"snapshots": snapshots})):
        (folder / f"library/{name}").write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(shown)}\nEND\n")
    (folder / "play.yml").write_text(PLAY)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "bringup_address": "192.0.2.1"}
    groups: dict[str, Any] = {"helpers": {"hosts": {}}, "played": {"hosts": {"sv1": None}}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"vars": local, "children": groups}}))
    told = {"rke2_version": OLD, "rke2_registration_address": "192.0.2.1", "rke2_server_addresses": ["192.0.2.1"]}
    done = ansible_plays.play(folder / "play.yml", folder / "hosts.json", told | {"stopped": str(folder / "stopped")})
    output = done.stdout + done.stderr
    assert (done.returncode == 0) == ("nothing was stopped" not in output), output
    return " ".join(output.split())
