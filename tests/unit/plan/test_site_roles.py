"""A site's own roles in a plan: where their tasks stand, that the judge counts them, and that their files travel with the tasks."""

from pathlib import Path
from typing import Any

import pytest

from steps.contract.host_play import RoleArchive
from steps.contract.runs.operation import Operation, OperationKind
from steps.stages.site_roles import contract as site_roles
from workflows import bringup, examples, spec
from workflows.plan import run_folders
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import render
from workflows.stages.stage import Stage

ROLES = """roles:
  - {name: first, path: ./role, before: rke2}
  - {name: second, path: ./role, before: rke2, hosts: servers}
  - {name: last, path: ./role, after: rke2, hosts: gpu, variables: {banner: hello}, secrets: {site_key: license}, timeout: 10m}
secrets: {license: {env: LICENSE}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "role/tasks").mkdir(parents=True)
    (tmp_path / "role/tasks/main.yml").write_text("- name: Look\n  ansible.builtin.command: id\n")
    return tmp_path


def plan(site: Path, text: str = ROLES, **words: Any) -> Plan:
    path = site / "cluster.yaml"
    path.write_text(examples.path("h200-16").read_text() + text)
    return compile_plan(spec.load(path), **words)


def stage(made: Plan, name: str) -> Stage:
    return next(one for one in made.stages if one.id == name)


def test_roles_stand_before_and_after_the_tasks_of_their_stage(site: Path) -> None:
    steps = {step.name: step for step in stage(plan(site), "rke2").steps}

    assert steps["role_second"].after == ("role_first",)
    assert steps["servers"].after == ("role_second",)
    assert steps["servers"].task.arguments["passed"] == ["role_first", "role_second"]
    assert steps["role_second"].task.arguments["passed"] == ["role_first"]
    assert "passed" not in steps["role_first"].task.arguments
    assert steps["role_last"].after == ("host_network", "functional")
    assert {"role_first", "servers", "agents"} <= set(steps["role_last"].task.arguments["passed"])
    assert {"role_first", "role_second", "role_last"} <= set(steps["judge"].after)
    assert (steps["role_first"].fan_out, steps["role_second"].fan_out, steps["role_last"].fan_out) == ("shards", "", "agents")
    assert steps["role_last"].task.deadline_seconds == 600
    assert steps["role_last"].task.arguments["variables"]["banner"] == "hello"
    assert steps["role_last"].task.arguments["secret_variables"] == {"site_key": "license"}


def test_the_judge_counts_every_role_on_its_hosts(site: Path) -> None:
    checks = {check["task"]: check for check in stage(plan(site), "rke2").steps[-1].task.arguments["checks"]}

    assert checks["role_last"] == {
        "task": "role_last",
        "gate": "site_roles/last",
        "select": "group-gpu",
        "fanned": True,
        "per_node": True,
    }
    assert checks["role_first"]["select"] == "all"
    assert checks["role_second"]["select"] == "group-servers"


def test_the_archive_travels_with_the_tasks_and_its_digest_with_the_plan(site: Path) -> None:
    before = plan(site)
    told = next(one for one in before.tasks if one.name == "role_last").arguments["role"]
    folder = run_folders.tasks_folder(before)
    config_map = render(before, bringup.build).config_maps[0]["data"]

    assert config_map[told["file"]].encode() == folder[told["file"]]
    assert site_roles.digest(site_roles.decode(folder[told["file"]], RoleArchive(**told))) == told["digest"]
    (site / "role/tasks/main.yml").write_text("- name: Look again\n  ansible.builtin.command: id\n")
    assert plan(site).digest != before.digest
    assert plan(site, only=["os_prep"]).archives == {}


def test_a_role_whose_hosts_are_not_touched_is_left_out(site: Path) -> None:
    made = plan(site, operation=Operation(kind=OperationKind.ADD_NODE, hosts=frozenset({"gpu003"})))

    names = [step.name for step in stage(made, "rke2").steps]
    assert "role_second" not in names, "it is about servers"
    assert {"role_first", "role_last"} <= set(names)
    assert [change.where for change in stage(made, "rke2").changes if "your role" in change.what] == ["gpu003", "gpu003"]
    assert set(made.archives) == {site_roles.file_name("first"), site_roles.file_name("last")}


def test_a_plan_without_roles_is_as_it_was(site: Path) -> None:
    assert plan(site, "").digest == compile_plan(spec.load(examples.path("h200-16"))).digest
