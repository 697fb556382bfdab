"""The linter for the portable subset: one change to a good manifest, one finding; the changes are data."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows.render.grammar.field_rules import ARGOS_CONTAINERS
from workflows.render.grammar.findings import LintFinding, refused
from workflows.render.grammar.lint import lint

GOOD: dict[str, Any] = yaml.safe_load(
    """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: wf, labels: {team: infra}}
spec:
  entrypoint: main
  onExit: bye
  arguments: {parameters: [{name: w, value: "1"}]}
  templates:
  - name: main
    dag:
      tasks:
      - {name: a, template: pod, arguments: {parameters: [{name: v, value: "{{workflow.parameters.w}}"}]}}
      - {name: b, template: pod, depends: a.Succeeded, when: "{{tasks.a.outputs.parameters.o}} == yes",
         arguments: {parameters: [{name: v, value: "{{tasks.a.outputs.parameters.o}} {{workflow.labels.team}}"}]}}
      - {name: gate, template: gate, depends: b}
  - name: pod
    inputs: {parameters: [{name: v}]}
    retryStrategy: {limit: 2, expression: "asInt(lastRetry.exitCode) == 75", backoff: {duration: "1"}}
    container: {image: i, command: [sh, -c], args: ["echo {{inputs.parameters.v}} {{retries}} {{unknown}}"]}
    outputs: {parameters: [{name: o, valueFrom: {path: /bringup/out/o, default: inconclusive}}]}
  - name: gate
    suspend: {duration: 10m}
    outputs: {parameters: [{name: decision, valueFrom: {supplied: {}, default: hold}}]}
  - name: bye
    container: {image: i, command: [echo], args: ["{{workflow.status}} {{workflow.failures}}"]}
"""
)
REFUSALS = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text())


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    manifest: Any = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = manifest
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place[key]
        place[last] = value
    return manifest


def test_the_good_manifest_is_not_refused() -> None:
    findings = lint(GOOD)
    assert not refused(findings)
    assert LintFinding("spec.templates[1].container.image", "only Argo acts on this", severity="noted") in findings


def test_one_patch_of_pods_is_taken_and_it_only_takes_rights_away() -> None:
    findings = lint(changed({"spec.podSpecPatch": ARGOS_CONTAINERS}))
    assert not refused(findings)
    assert LintFinding("spec.podSpecPatch", "only Argo acts on this", severity="noted") in findings
    patched = json.loads(ARGOS_CONTAINERS)
    assert [one["name"] for part in ("initContainers", "containers") for one in patched[part]] == ["init", "wait"]
    assert {one["securityContext"]["allowPrivilegeEscalation"] for part in patched.values() for one in part} == {False}


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: "-".join(case["set"]))
def test_a_defect_is_refused_where_it_stands(case: dict[str, Any]) -> None:
    found = refused(lint(changed(case["set"])))
    assert any(finding.path == case["at"] and case["says"] in str(finding) for finding in found), [
        str(finding) for finding in found
    ]


def test_all_defects_of_form_are_told_at_once() -> None:
    found = refused(lint(changed({"spec.nosuch": 1, "spec.templates.1.script": {}, "spec.templates.0.dag.failFast": 3})))
    assert {finding.path for finding in found} == {"spec.nosuch", "spec.templates[1].script", "spec.templates[0].dag.failFast"}


@pytest.mark.parametrize(
    "manifest", [None, [], "text", 7, {}, {"kind": "Workflow"}, {**GOOD, "spec": None}, {**GOOD, "metadata": []}]
)
def test_what_is_no_manifest_is_refused(manifest: Any) -> None:
    assert refused(lint(manifest))


def template(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": GOOD["apiVersion"], "kind": "WorkflowTemplate", "metadata": {"name": "base"}, "spec": spec}


def test_a_workflow_of_a_template() -> None:
    base = template(**{**GOOD["spec"], "arguments": {"parameters": [{"name": "w"}]}})
    run = {**GOOD, "spec": {"workflowTemplateRef": {"name": "base"}, "arguments": {"parameters": [{"name": "w", "value": "2"}]}}}
    assert not refused(lint(run, {"base": base}))
    assert not refused(lint(base))
    without = {**run, "spec": {"workflowTemplateRef": {"name": "base"}}}
    assert [finding.path for finding in refused(lint(without, {"base": base}))] == ["spec.arguments.w"]


def test_a_reference_into_another_template() -> None:
    library = template(templates=[GOOD["spec"]["templates"][3]])
    task = {"name": "x", "templateRef": {"name": "base", "template": "bye"}}
    manifest = changed({"spec.templates.0.dag": {"tasks": [task]}, "spec.onExit": None})
    sentences = [str(finding) for finding in refused(lint(manifest, {"base": library}))]
    assert all("only in the exit handler" in sentence for sentence in sentences)
    assert sentences[0].startswith("base:spec.templates[0].container.args[0]")
    task["templateRef"] = {"name": "base", "template": "nosuch"}
    missing = refused(lint(changed({"spec.templates.0.dag": {"tasks": [task]}}), {"base": library}))
    assert [finding.sentence for finding in missing] == ["template reference base.nosuch not found"]


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {**GOOD["spec"], **{f"key{number}": 1 for number in range(60_000)}}},
        {"metadata.labels": {f"key{number}": 1 for number in range(60_000)}},
        {"spec.arguments.parameters": [{"name": f"p{number}", "value": 1, "enum": []} for number in range(20_000)]},
        {"spec.templates.0.dag.tasks": [{"name": f"t{number}", "template": "pod", "nosuch": 1} for number in range(20_000)]},
    ],
    ids=["fields", "labels", "parameters", "tasks"],
)
def test_a_manifest_with_many_errors_is_checked_up_to_a_bound(changes: dict[str, Any]) -> None:
    findings = refused(lint(changed(changes)))
    assert len(findings) <= 402
    assert "manifest: has more errors: the check ended after 200 (mend these first)" in map(str, findings)


def test_a_long_chain_of_tasks_is_checked_in_linear_time() -> None:
    # with a check of quadratic time, this one takes minutes
    tasks = [{"name": f"t{number}", "template": "bye", "depends": f"t{number - 1}"} for number in range(1, 15_000)]
    (finding,) = refused(lint(changed({"spec.templates.0.dag.tasks": [{"name": "t0", "template": "bye"}, *tasks]})))
    assert finding.sentence == "has 15000 items; at most 200"


def test_a_key_forges_no_line_and_a_huge_one_is_refused() -> None:
    (finding,) = refused(lint(changed({"spec.a\nrefused  b\x1b[31m": 1})))
    assert finding.path == "spec.a\\nrefused  b\\x1b[31m"
    (finding,) = refused(lint(changed({"spec": {**GOOD["spec"], "k" * 500_000: 1}})))
    assert str(finding) == "manifest: has a key of more than 506 characters, which Argo does not accept"
