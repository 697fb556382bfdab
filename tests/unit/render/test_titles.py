"""Titles and descriptions of a run in Argo's UI, names with pipeline and cluster, and the form of an approval."""

from pathlib import Path
from typing import Any

from tests.unit import small_stack
from workflows import bringup, examples, stack
from workflows.engines.folders import new_run_name
from workflows.plan.compiler import compile_plan
from workflows.render.bundle import render
from workflows.render.titles import DESCRIPTION, TITLE
from workflows.softwarestack.stack_build_plan import compile_stack
from workflows.spec import load

PLAN = compile_plan(load(examples.path("h200-16")))
MANIFEST = render(PLAN, bringup.build).template
TEMPLATES: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in MANIFEST["spec"]["templates"]}


def test_every_template_of_a_task_or_stage_has_title_and_description() -> None:
    untitled = {name for name, entry in TEMPLATES.items() if not {TITLE, DESCRIPTION} <= set(entry.get("annotations", {}))}
    assert untitled == {"bringup", "finish"}  # the two frames of the run itself


def test_a_run_that_argo_submits_itself_carries_the_title_too() -> None:
    for annotations in (MANIFEST["metadata"]["annotations"], MANIFEST["spec"]["workflowMetadata"]["annotations"]):
        assert annotations[TITLE] == "bringup h200-16"
        assert "9 stages of h200-16" in annotations[DESCRIPTION]


def test_names_carry_pipeline_and_cluster_and_fit_into_a_label(tmp_path: Path) -> None:
    assert MANIFEST["metadata"]["name"].startswith("bringup-h200-16-")
    spec, resolved = small_stack.resolved(tmp_path)
    made = render(compile_stack(spec, resolved, resolved.planned(())), stack.build)
    assert made.workflow["metadata"]["generateName"] == "stack-lab-tools-"
    assert new_run_name("h200-16", "bringup").startswith("bringup-h200-16-2")
    assert len(new_run_name("a" * 40, "bringup")) == 63


def test_an_approval_shows_the_digest_of_the_evidence_and_offers_the_three_decisions() -> None:
    (gate,) = [name for name in TEMPLATES if name.startswith("approve-")][:1]
    form = {entry["name"]: entry for entry in TEMPLATES[gate]["inputs"]["parameters"]}
    assert form["decision"]["enum"] == ["hold", "pass", "reject"]
    assert {name: entry["default"] for name, entry in form.items()} == {"decision": "hold", "approver": "none", "evidence": "none"}
    tasks = {task["name"]: task for task in TEMPLATES["bringup"]["dag"]["tasks"]}
    (shown,) = tasks[gate]["arguments"]["parameters"]
    before = shown["value"].removeprefix("{{tasks.").removesuffix(".outputs.parameters.evidence}}")
    assert tasks[gate]["depends"] == f"{before}.Succeeded"
    (output,) = TEMPLATES[before]["outputs"]["parameters"]
    assert output["valueFrom"] == {"parameter": "{{tasks.judge.outputs.parameters.evidence}}", "default": "none"}


def test_only_judges_before_an_approval_output_the_digest() -> None:
    judges = {name: entry for name, entry in TEMPLATES.items() if name.endswith("-judge")}
    telling = {name for name, entry in judges.items() if "evidence" in str(entry["outputs"])}
    assert 0 < len(telling) < len(judges)
