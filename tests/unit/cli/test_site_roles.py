"""A site's own role in a plan that people read, and in a rehearsal from the command line to the report."""

import json
from typing import Any


def test_a_role_is_shown_rehearsed_and_reported(machine: Any, small: str) -> None:
    (machine.folder / "role/tasks").mkdir(parents=True)
    (machine.folder / "role/tasks/main.yml").write_text("- name: Look\n  ansible.builtin.command: id\n")
    spec = machine.folder / "cluster.yaml"
    spec.write_text(
        small.replace("stages: [os_prep, rke2]", "stages: [os_prep]") + "roles: [{name: mine, path: ./role, after: os_prep}]\n"
    )

    assert "your role mine (after os_prep, sha256:" in machine.call("plan", spec, "-o", "tree").out
    done = machine.call("rehearse", spec)
    assert done.code == 0, done.text
    assert "os_prep: role_mine pass: 16 of 16 nodes: done with role mine" in done.out
    report = json.loads(machine.call("report", "-o", "json").out)
    assert {node["gates"]["site_roles/mine"] for node in report["nodes"]} == {"pass"}

    (machine.folder / "role/tasks/main.yml").unlink()
    (machine.folder / "role/tasks").rmdir()
    gone = machine.call("rehearse", spec)
    assert gone.code == 64
    assert "roles[0].path" in gone.err
