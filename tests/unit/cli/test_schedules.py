"""Schedules and events on the command line: plan and render show them; the local engine says that it has no scheduler."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows import examples

SECTIONS = """
schedule: {cron: ["0 2 * * 6", "30 3 1 * *"], timezone: Europe/Berlin, suspend: true}
events: [{name: merged, selector: 'discriminator == "three-hosts"'}]
"""


@pytest.fixture
def spec(machine: Any) -> Path:
    file = machine.folder / "cluster.yaml"
    file.write_text(examples.path("three-hosts").read_text() + SECTIONS)
    return file


def test_plan_shows_what_starts_it(machine: Any, spec: Path) -> None:
    shown = machine.call("plan", spec).out
    assert "Argo starts it by itself: 0 2 * * 6 and 30 3 1 * * (Europe/Berlin, suspended)" in shown
    assert 'Argo starts it on the event merged: discriminator == "three-hosts"' in shown
    data = json.loads(machine.call("plan", spec, "-o", "json").out)
    assert data["schedule"]["timezone"] == "Europe/Berlin"
    assert data["events"] == [{"name": "merged", "selector": 'discriminator == "three-hosts"'}]
    assert "schedule: (none) → " in machine.call("plan", spec, "--against", "three-hosts").out


def test_render_writes_it_beside_the_rest(machine: Any, spec: Path) -> None:
    out = machine.folder / "made"
    assert "starts.yaml" in machine.call("render", spec, "--out", out).out
    kinds = [one["kind"] for one in yaml.safe_load_all((out / "starts.yaml").read_text())]
    assert kinds == ["ServiceAccount", "Secret", "Role", "RoleBinding", "CronWorkflow", "WorkflowEventBinding"]
    assert "CronWorkflow" not in machine.call("render", spec, "--only", "os_prep").out


@pytest.mark.parametrize(
    ("announce", "why"),
    [
        ("", "the approval is not announced"),
        (
            "    announce: {command: [notify]}\n",
            "its command runs on the machine of the user who follows the run, and such a run has none",
        ),
        ("    announce: {webhook: {secret: {name: chat, key: url}}}\n", ""),
        ("    announce: {webhook: {file: url}}\n", ""),
        ("    announce: {webhook: {env: URL}}\n", ""),
    ],
)
def test_an_approval_of_which_nobody_would_be_told_is_a_warning(machine: Any, spec: Path, announce: str, why: str) -> None:
    """By validate and plan, with place and fix; a webhook goes along with the run, wherever its URL lies."""
    plain = examples.path("single-node").read_text() + f"approvals:\n  - before: rke2\n    approvers: [ada]\n{announce}"
    spec.write_text(plain + SECTIONS)
    checked = machine.call("validate", spec, "-o", "json")
    found = [one for one in json.loads(checked.out)["issues"] if one["rule"] == "announced"]
    assert checked.code == 0
    if not why:
        assert found == []
        return
    (one,) = found
    assert (one["severity"], one["path"], bool(one["line"])) == ("warning", "approvals[0].announce", True)
    assert one["problem"] == f"a run that the schedule or an event starts waits before rke2, and no approver hears of it: {why}"
    assert "webhook: {secret: {name: NAME, key: KEY}}" in one["fix"]
    for form in ("table", "tree"):
        shown = machine.call("plan", spec, "-o", form).out
        assert f"warning announced approvals[0].announce: {one['problem']}; fix: {one['fix']}" in shown
    assert one["problem"] in {issue["problem"] for issue in json.loads(machine.call("plan", spec, "-o", "json").out)["issues"]}
    spec.write_text(plain)
    assert "announced" not in machine.call("validate", spec).out
    assert "warning" not in machine.call("plan", spec).out


def test_the_local_engine_says_that_it_has_no_scheduler(machine: Any, spec: Path) -> None:
    done = machine.call("run", spec)
    assert "the local engine has no scheduler" in done.out
    assert done.code == 64, done.text  # the key of the example is not here, so nothing is started
