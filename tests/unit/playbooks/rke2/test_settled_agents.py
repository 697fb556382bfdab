"""Agents that have nothing to do wait for nobody: the playbook of agents as Ansible runs it, with modules that say what is there,
and were asked."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.playbooks import ansible_plays
from tests.unit.playbooks.library import PLAYBOOKS

VERSION = "v1.35.7+rke2r1"
STATE = {"joined": True, "ready": True, "enabled": True, "version": VERSION, "restarts": 0}
SHOWN = {"changed": False, "observation": STATE, "refusal": "", "adopted": False, "pending": False, "half": False, "pings": ""}
SHOWN |= {"own_address": "192.0.2.1"}
SEEN = {
    "changed": False,
    "refused": {},
    "servers": {},
    "nodes": {"a1": {"marked": False}, "a2": {"marked": True}, "a3": {"marked": True}},
}
MODULE = """#!/bin/sh
# WANT_JSON
# a file for each call: those of several hosts come at one time
cat "$1" > "$(mktemp @FOLDER@/asked/@NAME@.XXXXXX)"
grep -q '"node-name": "a3"' "$1" && said='@OTHER@' || said='@SAID@'
echo "$said"
"""
CONFIGURED: dict[str, Any] = {"changed": False, "files": [], "pending": False, "restart": False}


def module(folder: Path, name: str, said: dict[str, Any], other: dict[str, Any] | None = None) -> None:
    """A module that says the same to all, and something else to a3 where its name is in what it is asked."""
    script = MODULE.replace("@NAME@", name).replace("@FOLDER@", str(folder))
    script = script.replace("@SAID@", json.dumps(said)).replace("@OTHER@", json.dumps(other or said))
    (folder / "library" / name).write_text(script)


def played(tmp_path: Path, helpers: tuple[str, ...], **also: Any) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """Run the playbook of agents and return its output and the arguments of its modules, in the order of their calls."""
    (tmp_path / "rke2_agent.yml").write_text((PLAYBOOKS / "rke2_agent.yml").read_text())
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "bringup_address": "192.0.2.1"}
    groups = {"helpers": {"hosts": dict.fromkeys(helpers)}, "played": {"hosts": dict.fromkeys(("a1", "a2", "a3"))}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": local, "children": groups}}))
    told = {"rke2_version": VERSION, "rke2_registration_address": "192.0.2.1", "rke2_join_batch": 1} | also
    done = ansible_plays.play(tmp_path / "rke2_agent.yml", tmp_path / "hosts.json", told, "-v")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output

    asked = sorted((tmp_path / "asked").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return output, [(path.stem, json.loads(path.read_text())) for path in asked]


@pytest.mark.parametrize("helpers", [("sv1",), ()], ids=["a server that can act", "no server that answers"])
def test_who_is_settled_is_not_among_those_that_join_and_takes_work_again(tmp_path: Path, helpers: tuple[str, ...]) -> None:
    for folder in ("library", "asked"):
        (tmp_path / folder).mkdir()
    module(tmp_path, "rke2_status", SHOWN)
    module(tmp_path, "rke2_nodes", SEEN)
    module(tmp_path, "rke2_config", CONFIGURED, CONFIGURED | {"files": ["/etc/rancher/rke2/registries.yaml"], "restart": True})
    output, calls = played(tmp_path, helpers)
    configured = [words["config"]["node-name"] for name, words in calls if name == "rke2_config"]
    assert sorted(configured) == ["a1", "a2", "a3", "a3"], "what differs is written in its turn, after all were compared"
    freed = [words["names"] for name, words in calls if name == "rke2_nodes" and words["state"] == "free"]
    assert freed == ([["a2"], ["a3"]] if helpers else [])
    assert output.count("PLAY [Join agents in batches]") == 1
    assert sorted(re.findall(r'^ok: \[(\w+)\] => .*"bringup_ended": true', output, re.MULTILINE)) == ["a1", "a2", "a3"]


@pytest.mark.parametrize(("lacking", "calls_each"), [([], 1), (["checks.tar"], 2)], ids=["all there", "one is new"])
def test_an_agent_that_rests_gets_image_archives_that_the_site_added(tmp_path: Path, lacking: list[str], calls_each: int) -> None:
    for folder in ("library", "asked"):
        (tmp_path / folder).mkdir()
    module(tmp_path, "rke2_status", SHOWN)
    module(tmp_path, "rke2_nodes", SEEN)
    module(tmp_path, "rke2_config", CONFIGURED)
    module(tmp_path, "rke2_release", {"changed": bool(lacking), "files": lacking})
    output, calls = played(tmp_path, ("sv1",), rke2_artifacts="/srv/rke2", rke2_images=["core", "checks.tar"])

    asked = [words for name, words in calls if name == "rke2_release"]
    assert {(one["state"], one["artifacts"], tuple(one["images"])) for one in asked} == {
        ("supplied", "/srv/rke2", ("core", "checks.tar"))
    }
    assert [one["_ansible_check_mode"] for one in asked] == [True] * 3 + [False] * 3 * (calls_each - 1), (
        "all are asked, then changed"
    )
    assert "restarted" not in output
    assert sorted(re.findall(r'^ok: \[(\w+)\] => .*"bringup_ended": true', output, re.MULTILINE)) == ["a1", "a2", "a3"]
