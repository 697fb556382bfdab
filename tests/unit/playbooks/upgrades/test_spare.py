"""The check whether a server may stop, run by Ansible with a stand-in module that answers as kubectl on the server would."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.unit.playbooks import ansible_plays
from tests.unit.playbooks.library import PLAYBOOKS

OLD, NEW = "v1.35.7+rke2r1", "v1.36.1+rke2r1"
PLAY = """
- hosts: sv1
  gather_facts: false
  vars: {rke2_kind: server}
  tasks:
    - ansible.builtin.include_role: {name: rke2, tasks_from: spare}
"""
REFUSED = "kubectl on this server: The connection to the server 127.0.0.1:6443 was refused"
MAJORITY = "etcd needs 2 of 3 members"


def spared(folder: Path, *, ready: bool, said: dict[str, object]) -> str:
    """Return why a server of the release before may not stop, or "" if it may; `said` is the answer of the stand-in module."""
    shutil.copytree(PLAYBOOKS / "roles/rke2", folder / "roles/rke2")
    (folder / "library").mkdir()
    (folder / "library/rke2_nodes").write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(said)}\nEND\n")
    (folder / "play.yml").write_text(PLAY)
    state = {"joined": True, "ready": ready, "version": OLD, "waiting_for": "" if ready else "unit failed"}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "bringup_address": "192.0.2.1"}
    hosts = {"sv1": {"rke2_before": {"observation": state}}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"vars": local, "hosts": hosts}}))
    told = {"rke2_version": NEW, "rke2_registration_address": "192.0.2.1"}
    done = ansible_plays.play(folder / "play.yml", folder / "hosts.json", told)
    return "" if done.returncode == 0 else " ".join((done.stdout + done.stderr).split())


def test_a_server_that_is_down_with_the_release_before_is_said_to_be_so_with_what_to_do(tmp_path: Path) -> None:
    said = spared(tmp_path, ready=False, said={"failed": True, "msg": REFUSED})
    # it begins with the failure itself: of any other one a run would tell the first failure alone (clients/ansible/test_events.py)
    assert f'"msg": "{REFUSED}: sv1 is down (unit failed) with its {OLD}, and a server is upgraded only while it runs' in said
    assert f"`bringup replace-node SPEC --hosts sv1` while rke2.version is still {OLD}, and upgrade then" in said
    assert "nothing was changed here" in said


@pytest.mark.parametrize(
    ("ready", "shown", "why"),
    [
        (True, {"failed": True, "msg": REFUSED}, REFUSED),
        (True, {"majority": MAJORITY, "refusal": ""}, MAJORITY),
        (False, {"majority": MAJORITY, "refusal": ""}, MAJORITY),
        (False, {"majority": "", "refusal": ""}, ""),
    ],
    ids=["kubectl fails on one that runs", "no majority", "no majority, and not ready", "not ready, and can be spared"],
)
def test_one_whose_kubectl_answers_is_refused_with_what_the_cluster_lacks(
    tmp_path: Path, ready: bool, shown: dict[str, object], why: str
) -> None:
    said = spared(tmp_path, ready=ready, said={"changed": False} | shown)
    assert why in said
    assert "sv1 is down" not in said
    assert (said == "") == (why == "")
