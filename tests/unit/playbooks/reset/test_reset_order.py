"""Calls of a reset to the cluster: none for a host that is left alone, and one for all others together.

Ansible runs the role with stand-in modules that report the state of a host and record calls.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.unit.playbooks import ansible_plays
from tests.unit.playbooks.library import PLAYBOOKS

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

    done = ansible_plays.play(
        tmp_path / "play.yml", tmp_path / "hosts.json", {"rke2_reset_forget": True, "rke2_reset_servers": ["192.0.2.1"]}
    )

    assert said in done.stdout + done.stderr
    assert (done.returncode == 0, (tmp_path / "asked").exists()) == (not said, not said), done.stdout + done.stderr


TOLD = """#!/bin/sh
# WANT_JSON
# once for each task: what is asked, and what the cluster says
cat "$1" >> @FOLDER@/asked
echo >> @FOLDER@/asked
case "$(cat "$1")" in
  *'"removed"'*) echo '@SAID@' ;;
  *) echo '{"changed": true, "nodes": {}, "refused": {}}' ;;
esac
"""
LEFT = """#!/bin/sh
# WANT_JSON
case "$(cat "$1")" in
  *'"gone"'*gpu2*|*gpu2*'"gone"'*) echo '{"failed": true, "msg": "a mount is busy"}' ;;
  *) echo '{"changed": false, "any": false, "joins": "", "refused": "", "observation": {}}' ;;
esac
"""


def reset(folder: Path, nodes: str) -> str:
    """Run a reset of three hosts and return Ansible's output; `nodes` is the stand-in for rke2_nodes, and gpu2 stays unclean."""
    shutil.copytree(PLAYBOOKS / "roles/rke2_reset", folder / "roles/rke2_reset")
    (folder / "library").mkdir()
    (folder / "library/rke2_traces").write_text(LEFT)
    (folder / "library/rke2_nodes").write_text(nodes.replace("@FOLDER@", str(folder)))
    (folder / "play.yml").write_text(PLAY)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {name: {"rke2_reset_virtual_address": name} for name in ("gpu1", "gpu2", "gpu3")}
    groups = {"helpers": {"hosts": {"sv1": None}}, "played": {"hosts": hosts}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"vars": local, "children": groups}}))
    done = ansible_plays.play(
        folder / "play.yml", folder / "hosts.json", {"rke2_reset_forget": True, "rke2_reset_servers": ["192.0.2.1"]}
    )
    return done.stdout + done.stderr


def test_where_nobody_can_drain_every_host_says_so(tmp_path: Path) -> None:
    output = " ".join(
        reset(tmp_path, TOLD.replace('{"changed": true, "nodes": {}, "refused": {}}', '{"failed": true, "msg": "no API"}')).split()
    )
    assert [host for host in ("gpu1", "gpu2", "gpu3") if f"{host} could not be drained: no API" in output] == [
        "gpu1",
        "gpu2",
        "gpu3",
    ]
    assert len((tmp_path / "asked").read_text().splitlines()) == 1, "and nothing is removed"


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        ({"changed": True, "nodes": {}, "refused": {"gpu3": "etcd has no leader"}}, {"gpu3": "etcd has no leader"}),
        ({"failed": True, "msg": "no API server"}, dict.fromkeys(("gpu1", "gpu3"), "no API server")),
    ],
    ids=["one Node refuses", "the API does not answer"],
)
def test_the_cluster_forgets_all_hosts_in_one_call_and_none_that_failed(
    tmp_path: Path, said: dict[str, object], failed: dict[str, str]
) -> None:
    output = reset(tmp_path, TOLD.replace("@SAID@", json.dumps(said)))
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert [one["names"] for one in asked if one["state"] == "removed"] == [["gpu1", "gpu3"]], output
    assert "a mount is busy" in output
    for host in ("gpu1", "gpu3"):
        why = f"the cluster still has the Node {host}: {failed.get(host, '')}"
        assert (why in " ".join(output.split())) == (host in failed), output
