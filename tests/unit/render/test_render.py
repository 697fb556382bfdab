"""What is rendered: closed schema, both layers of the linter, size, rights."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from workflows import bringup, examples, factory, image, stack
from workflows.plan.compiler import compile_plan
from workflows.render import closed, grammar, house, steps
from workflows.render.bundle import Build, Bundle, render, to_yaml
from workflows.spec import load

PIPELINES = {"bringup": bringup.build, "factory": factory.build, "stack": stack.build, "image": image.build}
TEXT = examples.path("h200-16").read_text()


def bundle(name: str = "h200-16", build: Build = bringup.build) -> Bundle:
    return render(compile_plan(load(examples.path(name))), build)


@pytest.mark.parametrize("name", examples.names())
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_pipeline_of_every_example_is_inside_both_layers(name: str, pipeline: str) -> None:
    made = bundle(name, PIPELINES[pipeline])
    template = made.template["metadata"]["name"]
    assert grammar.refused(grammar.lint(made.workflow, {template: made.template})) == ()
    assert house.breaches(made.template) == ()


def test_rendering_twice_gives_the_same_bytes_and_yaml_reads_back() -> None:
    one, two = bundle(), bundle()
    assert one.files() == two.files()
    assert yaml.safe_load(one.files()["workflowtemplate.yaml"]) == one.template


def test_the_manifest_does_not_depend_on_how_many_nodes_there_are() -> None:
    def neutral(nodes: int) -> str:  # as many nodes need a larger pod network
        text = TEXT.replace("gpu[001-016]", f"gpu[00001-{nodes:05d}]").replace("15/16", "90%")
        text = text.replace("  cni: canal", "  cni: canal\n  cluster_cidr: 100.64.0.0/10")
        made = render(compile_plan(load(text.replace('{pattern: "10.10.1.{1}"}', "{start: 10.64.0.1}"))), bringup.build)
        return re.sub(r"[0-9a-f]{64}|(?<=-)[0-9a-f]{12}\b", "ID", to_yaml(made.template, made.workflow))

    assert neutral(10) == neutral(10_000)


def test_no_pod_runs_as_root_or_with_a_mounted_token() -> None:
    spec = bundle().template["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    for template in spec["templates"]:
        if "container" in template:
            assert template["container"]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert template["serviceAccountName"].startswith("bringup-")


def test_rights_in_home_are_task_results_and_for_plays_one_named_secret() -> None:
    roles = [one for one in bundle().rbac if one["kind"] == "Role"]
    for role in roles:
        rules = role["rules"]
        assert rules[0] == {"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}
        assert len(rules) == (2 if role["metadata"]["name"] == "bringup-play" else 1)
        assert all(rule.get("resourceNames") == ["bringup-runtime"] for rule in rules[1:])


def test_who_may_create_helm_charts_is_called_what_it_is() -> None:
    notes = {role["metadata"]["name"]: role["metadata"].get("annotations", {}) for role in bundle().target_rbac}
    assert "cluster-admin in effect" in notes["bringup-gpu-operator-apply"]["bringup/note"]
    for role in bundle().target_rbac:
        assert all("*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]) for rule in role["rules"]), role["metadata"]


def breach(change: Callable[[dict[str, Any]], None]) -> str:
    """The house profile's sentences after one change to a good manifest."""
    template = copy.deepcopy(bundle().template)
    change(template["spec"])
    return "\n".join(house.breaches(template))


def first(spec: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(template for template in spec["templates"] if kind in template)


BREACHES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda spec: spec.pop("onExit"), "ends with report and seal"),
    (lambda spec: spec.pop("synchronization"), "add a workflow-level mutex"),
    (lambda spec: first(spec, "container")["container"].update(command=["sh", "-c"]), "must be ['python', '-m', 'steps']"),
    (lambda spec: first(spec, "container")["container"].update(args=["fly"]), "is no verb"),
    (
        lambda spec: first(spec, "container")["container"]["args"].append("/etc/passwd"),
        "path /etc/passwd must start with /bringup/",
    ),
    (lambda spec: first(spec, "container")["container"]["volumeMounts"][0].update(mountPath="/data"), "mount /data"),
    (lambda spec: first(spec, "container").pop("retryStrategy"), "the exit code decides the retry"),
    (lambda spec: first(spec, "container").pop("activeDeadlineSeconds"), "a pod that hangs must end"),
    (
        lambda spec: first(spec, "suspend")["outputs"]["parameters"][0]["valueFrom"].update(default="pass"),
        "a time-out must approve nothing",
    ),
    (lambda spec: first(spec, "suspend")["suspend"].pop("duration"), "a forgotten approval must end"),
    (lambda spec: first(spec, "outputs")["outputs"]["parameters"][0].update(name="log"), "output log is not among"),
    (lambda spec: first(spec, "outputs")["outputs"]["parameters"][0]["valueFrom"].update(default="x"), "must let nothing pass"),
    (
        lambda spec: first(spec, "outputs")["outputs"]["parameters"][0]["valueFrom"].update(path="/tmp/x"),
        "which must lie below /bringup/",
    ),
    (
        lambda spec: next(t for t in spec["templates"] if t["name"] == "bringup")["dag"]["tasks"][0].update(when="a == b"),
        "which has `when` and may leave none",
    ),
]


@pytest.mark.parametrize(("change", "said"), BREACHES, ids=[said[:30] for _, said in BREACHES])
def test_each_rule_of_the_house_catches_its_breach(change: Callable[[dict[str, Any]], Any], said: str) -> None:
    assert said in breach(change)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("spec.entrypont", lambda spec: spec.update(entrypont="x")),
        ("spec.templates[0].container.comand", lambda spec: first(spec, "container")["container"].update(comand=[])),
        ("spec.templates[0].retryStrategy.limt", lambda spec: first(spec, "container")["retryStrategy"].update(limt=3)),
    ],
)
def test_no_field_is_dropped_in_silence(path: str, change: Callable[[dict[str, Any]], None]) -> None:
    template = copy.deepcopy(bundle().template)
    assert closed.unknown_fields(template) == ()
    change(template["spec"])
    assert closed.unknown_fields(template) == (path,)


def test_fields_newer_than_the_models_are_known() -> None:
    template = copy.deepcopy(bundle().template)
    template["spec"]["templates"][0]["pendingTimeout"] = "15m"
    assert closed.unknown_fields(template) == ()


def test_the_image_and_the_namespace_are_chosen_by_the_installation() -> None:
    chosen = steps.Settings(namespace="ops", image="registry.example.org/steps@sha256:" + "0" * 64)
    made = render(compile_plan(load(examples.path("h200-16"))), bringup.build, chosen)
    assert made.template["metadata"]["namespace"] == "ops"
    assert first(made.template["spec"], "container")["container"]["image"] == chosen.image
