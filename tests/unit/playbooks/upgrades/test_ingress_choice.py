"""An upgrade that would leave open which ingress controller the cluster has does not begin: run by Ansible up to where servers are
sorted, with a module that says what runs there."""

import json
import sys
from pathlib import Path

import pytest

from tests.unit.playbooks import ansible_plays

OLD, NEW = "v1.35.7+rke2r1", "v1.36.1+rke2r1"
PLAY = """
- hosts: sv1
  vars: {rke2_kind: server}
  tasks:
    - ansible.builtin.include_role: {name: rke2, tasks_from: look}
"""


@pytest.mark.parametrize(
    ("installed", "wanted", "named", "untouched", "refused"),
    [
        (OLD, NEW, "", False, True),
        (OLD, NEW, "ingress-nginx", False, False),
        (OLD, NEW, "", True, False),
        (OLD, "v1.35.8+rke2r1", "", False, False),
        (NEW, "v1.36.2+rke2r1", "", False, False),
        ("", NEW, "", False, False),
    ],
    ids=["open", "named", "only read", "of the same minor", "of a minor that has it", "a new cluster"],
)
def test_an_upgrade_over_the_minor_that_changes_it_names_the_controller(
    tmp_path: Path, installed: str, wanted: str, named: str, untouched: bool, refused: bool
) -> None:
    (tmp_path / "library").mkdir()
    observation = {"joined": bool(installed), "version": installed, "ready": True, "enabled": True}
    shown = {"changed": False, "observation": observation, "refusal": "", "adopted": False, "pings": "", "half": False}
    (tmp_path / "library/rke2_status").write_text(f"#!/bin/sh\necho '{json.dumps(shown)}'\n")
    (tmp_path / "play.yml").write_text(PLAY)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "bringup_address": "192.0.2.1"}
    groups = {"helpers": {"hosts": {}}, "played": {"hosts": {"sv1": None}}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": local, "children": groups}}))
    told: dict[str, object] = {"rke2_version": wanted, "rke2_registration_address": "192.0.2.1", "rke2_first_server": "sv1"}
    told |= {"rke2_ingress_controller": named, "rke2_untouched": ["sv1"] if untouched else []}
    done = ansible_plays.play(tmp_path / "play.yml", tmp_path / "hosts.json", told)

    said = " ".join((done.stdout + done.stderr).split())
    assert (done.returncode != 0) is refused, said
    assert (
        f"rke2.ingress_controller: {wanted} gives new clusters Traefik, and this one, which runs {installed}" in said
    ) is refused
