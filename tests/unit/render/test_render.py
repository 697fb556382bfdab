"""Rendered manifests: no unknown fields, both layers of the linter, size and rights."""

import copy
import itertools
import re
import typing
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps import __version__
from steps.contract.runs import approval
from tests.unit import small_stack
from workflows import bringup, examples, factory, image, stack
from workflows.engines import open_approvals
from workflows.plan.compiler import compile_plan
from workflows.plan.factory_plan import compile_factory
from workflows.rehearsal.faults import fault_registry
from workflows.render import manifest_policy, names, rbac, steps, unknown_fields
from workflows.render.bundle import Build, Bundle, RenderError, render, to_yaml
from workflows.render.grammar.findings import refused
from workflows.render.grammar.lint import lint
from workflows.softwarestack.stack_build_plan import compile_stack
from workflows.spec import load, load_factory
from workflows.stage_names import STAGES, StageName
from workflows.stages import IMAGE_ORDER, OPERATIONS, ORDER, STACK_ORDER
from workflows.stages.rights import CLAIM
from workflows.stages.stage import Rule

TEXT = examples.path("h200-16").read_text()


def bundle(name: str = "h200-16", build: Build = bringup.build) -> Bundle:
    return render(compile_plan(load(examples.path(name))), build)


@pytest.mark.parametrize("name", examples.names())
def test_every_example_is_inside_both_layers(name: str) -> None:
    require_clean(bundle(name))


def test_a_factory_is_inside_both_layers() -> None:
    spec = load_factory(Path(examples.__file__).parent / "factories/factory.yaml")
    require_clean(render(compile_factory(spec, {}), factory.build))


def test_a_stack_is_inside_both_layers(tmp_path: Path) -> None:
    spec, resolved = small_stack.resolved(tmp_path)
    require_clean(render(compile_stack(spec, resolved, resolved.planned(())), stack.build))


def require_clean(made: Bundle) -> None:
    assert refused(lint(made.workflow, {made.template["metadata"]["name"]: made.template})) == ()
    assert manifest_policy.breaches(made.template) == ()


@pytest.mark.parametrize(
    ("build", "order"), [(bringup.build, (*OPERATIONS, *ORDER)), (image.build, IMAGE_ORDER), (stack.build, STACK_ORDER)]
)
def test_a_pipeline_spells_out_every_stage_that_its_plan_may_have_in_the_order_of_the_plan(
    build: Build, order: tuple[str, ...]
) -> None:
    plan = compile_plan(load(examples.path("single-node")), only=["rke2"])
    stages = [replace(plan.stages[0], id=name) for name in (*order, "brand_new")]
    made = render(replace(plan, stages=tuple(stages[:-1])), build).template
    main = next(one for one in made["spec"]["templates"] if one["name"] == made["spec"]["entrypoint"])
    edges = [(task.get("depends", ""), task["name"]) for task in main["dag"]["tasks"]]
    drawn = ["open", *(name.replace("_", "-") for name in order)]
    assert edges == [("", "open"), *((f"{before}.Succeeded", after) for before, after in itertools.pairwise(drawn))]
    with pytest.raises(RenderError, match=rf"but the plan has .*{order[-1]} >> brand_new; draw those"):
        render(replace(plan, stages=tuple(stages)), build)
    with pytest.raises(RenderError, match=rf"draws the edges .*open >> {order[0]}"):
        render(replace(plan, stages=tuple(reversed(stages[:-1]))), build)


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


def test_a_play_has_memory_for_a_process_of_ansible_for_each_host_of_a_shard() -> None:
    containers = [one["container"] for one in bundle().template["spec"]["templates"] if "container" in one]
    most = {one["resources"]["limits"]["memory"] for one in containers if "play" in [*one["command"], *one["args"]]}
    assert most == {"3Gi"}, "50 hosts were 1.2 GiB where facts are gathered, and 1 GiB ended in the kernel's hands"


def test_no_pod_runs_as_root_or_with_a_mounted_token() -> None:
    spec = bundle().template["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    for template in spec["templates"]:
        if "container" in template:
            assert template["container"]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert template["container"]["securityContext"]["readOnlyRootFilesystem"] is True
            assert template["serviceAccountName"].startswith("bringup-")


def test_rights_in_home_are_task_results_for_the_executor_and_nothing_else() -> None:
    made = bundle()
    (role, people) = [one for one in made.rbac if one["kind"] == "Role"]
    assert people["metadata"]["name"] == rbac.SUBMITTER  # bound to nobody
    assert role["rules"] == [{"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}]
    (binding,) = [one for one in made.rbac if one["kind"] == "RoleBinding"]
    account = made.template["spec"]["executor"]["serviceAccountName"]
    assert [subject["name"] for subject in binding["subjects"]] == [account]
    (token,) = [one for one in made.rbac if one["kind"] == "Secret"]
    assert token["metadata"]["name"] == f"{account}.service-account-token"  # where Argo looks for it
    assert token["metadata"]["annotations"] == {"kubernetes.io/service-account.name": account}
    used = {template["serviceAccountName"] for template in made.template["spec"]["templates"] if "container" in template}
    assert used <= {one["metadata"]["name"] for one in made.rbac if one["kind"] == "ServiceAccount"} - {account}


Right = tuple[str, str, str, str, str]
"""Name of the task's account, namespace (empty: cluster-wide), API group, resource, verb."""


def granted(objects: tuple[dict[str, Any], ...]) -> Counter[Right]:
    """Every right that a bound role gives to the account of its own name, and how often."""
    accounts = {(one["metadata"]["name"], one["metadata"]["namespace"]) for one in objects if one["kind"] == "ServiceAccount"}
    roles = {place(one): one for one in objects if one["kind"] in ("Role", "ClusterRole")}
    rights: Counter[Right] = Counter()
    for binding in (one for one in objects if one["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) in accounts, binding
        reference, space = binding["roleRef"], binding["metadata"].get("namespace", "")
        assert binding["kind"] == f"{reference['kind']}Binding", binding
        for rule in roles.pop((reference["kind"], space, reference["name"]))["rules"]:
            sets = itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
            rights.update((subject["name"], space, *one) for one in sets)
    assert roles == {}, "roles that nothing binds"
    return rights


def place(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


@pytest.mark.parametrize("name", examples.names())
def test_a_task_may_do_on_the_target_what_its_rules_say_where_they_say_it(name: str) -> None:
    plan = compile_plan(load(examples.path(name)))
    given = granted(render(plan, bringup.build).target_rbac)
    assert [right for right, times in given.items() if times > 1] == []
    rules = {names.template(stage.id, step.name): step.rules for stage in plan.stages for step in stage.steps}
    wanted = {
        (f"bringup-{task}", space, *one)
        for task, needed in (
            rules | {"run-open": CLAIM, "run-seal": CLAIM}
        ).items()  # the one holds the target, the other gives it free
        for rule in needed
        for space in rule.namespaces or ("",)
        for one in itertools.product(rule.groups, rule.resources, rule.verbs)
    }
    everywhere = {right for right in wanted if right[1] == ""}
    assert {right for right in given if right[1] == ""} == everywhere
    assert set(given) == {right for right in wanted if right[1] == "" or (right[0], "", *right[2:]) not in everywhere}


@pytest.mark.parametrize("name", examples.names())
def test_no_task_may_read_secrets_cluster_wide(name: str) -> None:
    given = granted(bundle(name).target_rbac)
    assert [right for right in given if right[1] == "" and right[3] in ("secrets", "*")] == []
    assert [right for right in given if "*" in right] == []


def test_charts_are_compared_with_release_secrets_of_their_own_namespaces() -> None:
    given = granted(bundle().target_rbac)
    mine = {right[1:] for right in given if right[0] == "bringup-gpu-operator-apply" and right[3] == "secrets"}
    assert mine == {("gpu-operator", "", "secrets", "list")}


@pytest.mark.parametrize("name", examples.names())
def test_every_namespace_of_a_role_is_there_before_it(name: str) -> None:
    there = set(rbac.BUILT_IN)
    for one in bundle(name).target_rbac:
        if one["kind"] == "Namespace":
            assert "labels" not in one["metadata"]
            there.add(one["metadata"]["name"])
        assert one["metadata"].get("namespace", "kube-system") in there, one


def test_rights_are_merged() -> None:
    rules = [
        Rule(groups=("",), resources=("pods",), verbs=("list",)),
        Rule(groups=("",), resources=("pods", "events"), verbs=("get", "list")),
        Rule(groups=("",), resources=("pods",), verbs=("list", "delete"), namespaces=("a", "b")),
        Rule(groups=("",), resources=("events",), verbs=("get",), namespaces=("c",)),
    ]
    pods, events = ("", "pods"), ("", "events")
    read, left = frozenset({"get", "list"}), {pods: frozenset({"delete"})}
    assert rbac.merge(rules) == rbac.merge(rules[::-1]) == {"": {events: read, pods: read}, "a": left, "b": left}


def test_who_is_cluster_admin_in_effect_is_called_so() -> None:
    made = bundle().target_rbac
    notes = {place(one): one["metadata"]["annotations"]["bringup/note"] for one in made if "annotations" in one["metadata"]}
    charts = "may create HelmCharts: cluster-admin in effect"
    assert notes["Role", "kube-system", "bringup-gpu-operator-apply"] == charts
    for right in granted(made):
        if right[3] == "helmcharts" and right[4] != "get":
            assert notes["Role", right[1], right[0]] == charts
    assert notes["ClusterRole", "", "bringup-validation-apply"] == "may bind ClusterRoles: cluster-admin in effect"


def breach(change: Callable[[dict[str, Any]], None]) -> str:
    """Sentences about a good manifest after one change."""
    template = copy.deepcopy(bundle().template)
    change(template["spec"])
    return "\n".join(manifest_policy.breaches(template))


def first(spec: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(template for template in spec["templates"] if kind in template)


BREACHES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda spec: spec.pop("onExit"), "ends with report and seal"),
    (lambda spec: spec.pop("synchronization"), "add a workflow-level mutex"),
    (lambda spec: spec.pop("executor"), "Argo makes no pod that has no mounted token"),
    (lambda spec: spec.pop("automountServiceAccountToken"), "a step needs no token of home"),
    (lambda spec: first(spec, "container")["container"].update(command=["sh", "-c"]), "must be ['python', '-m', 'steps']"),
    (lambda spec: first(spec, "container")["container"].update(args=["fly"]), "is not a verb"),
    (
        lambda spec: first(spec, "container")["container"]["args"].append("/etc/passwd"),
        "path /etc/passwd must start with /bringup/",
    ),
    (lambda spec: first(spec, "container")["container"]["volumeMounts"][0].update(mountPath="/data"), "mount /data"),
    (lambda spec: first(spec, "container").pop("retryStrategy"), "only exit code 75 and lost attempts"),
    (lambda spec: first(spec, "container").pop("activeDeadlineSeconds"), "a pod that hangs must end"),
    (
        lambda spec: first(spec, "container")["retryStrategy"]["backoff"].update(maxDuration="5m"),
        "a long task gets no second one",
    ),
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
def test_each_rule_for_our_own_manifests_catches_its_breach(change: Callable[[dict[str, Any]], Any], said: str) -> None:
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
    assert unknown_fields.unknown_fields(template) == ()
    change(template["spec"])
    assert unknown_fields.unknown_fields(template) == (path,)


def test_fields_newer_than_the_models_are_known() -> None:
    template = copy.deepcopy(bundle().template)
    template["spec"]["templates"][0]["pendingTimeout"] = "15m"
    assert unknown_fields.unknown_fields(template) == ()


def test_the_image_and_the_namespace_are_chosen_by_the_installation() -> None:
    chosen = steps.Settings(namespace="ops", image="registry.example.org/steps@sha256:" + "0" * 64)
    made = render(compile_plan(load(examples.path("h200-16"))), bringup.build, chosen)
    assert made.template["metadata"]["namespace"] == "ops"
    assert first(made.template["spec"], "container")["container"]["image"] == chosen.image


def test_the_default_image_is_of_this_version() -> None:
    image = first(bundle().template["spec"], "container")["container"]["image"]
    assert image == f"bringup-steps:{__version__}"


def test_approvals_have_one_name() -> None:
    made = bundle().template["spec"]["templates"]
    waits = {template["name"] for template in made if "suspend" in template}
    tasks = {task["template"] for template in made if "dag" in template for task in template["dag"]["tasks"]}
    assert waits
    assert waits <= tasks
    assert all(name.startswith(approval.NODE_PREFIX) for name in waits)
    assert open_approvals.PREFIX == approval.NODE_PREFIX


def test_an_approval_may_depend_on_what_an_earlier_stage_has_found() -> None:
    sunk = TEXT.replace("  kind: slinky\n", "  kind: sunk\n  repo: oci://r.example.org/sunk\n  version: 7.3.0\n")
    made = render(compile_plan(load(sunk), only=["slurm", "slurm_login"]), bringup.build)
    require_clean(made)
    (main,) = [one for one in made.template["spec"]["templates"] if one["name"] == "bringup"]
    tasks = {task["name"]: task for task in main["dag"]["tasks"]}
    assert tasks["approve-slurm-login"]["when"] == "{{tasks.slurm.outputs.parameters.sessions}} == some"
    assert tasks["confirm-slurm-login"]["depends"] == "approve-slurm-login.Succeeded"
    assert tasks["slurm-login"]["depends"] == "(confirm-slurm-login.Succeeded || approve-slurm-login.Skipped)"
    alone = compile_plan(load(sunk), only=["slurm_login"])
    assert [stage.approval for stage in alone.stages] == [None], "nobody has listed what it would be about"


def test_the_order_of_stages_is_written_once() -> None:
    assert typing.get_args(StageName) == STAGES
    assert ORDER is STAGES
    assert fault_registry.STAGES[: len(STAGES)] == STAGES
