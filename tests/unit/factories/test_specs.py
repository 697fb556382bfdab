"""Specs of factories and their pipeline files: all errors at once, each with its place and what to write instead."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from steps.contract.task import MAX_BYTES, Verb
from tests.unit.factories.conftest import STARTER, TEMPLATE
from workflows.plan.factory_plan import compile_factory
from workflows.plan.model import PlanError
from workflows.spec import SpecErrors, load_factory
from workflows.spec.pipelines.pipeline_files import load_pipelines

TEXT = STARTER.read_text()
LOGIN = "{username: factory, password: {env: PASSWORD}, htpasswd: {file: users}}"
MANY = [f"user{number}@example.org" for number in range(200)]
TLS = "{certificate: {file: a.crt}, key: {file: a.key}, ca: {file: ca.crt}}"


@pytest.mark.parametrize(
    ("change", "path", "sentence"),
    [
        (("version: v4.1.2", "version: v4.1.0"), "argo.version", "older than v4.1.2"),
        (("version: v4.1.2", "version: latest"), "argo.version", "not a release"),
        (("size: 100Gi", "image: 'registry:latest', size: 100Gi"), "registry.image", "different things at different times"),
        (("size: 100Gi", "image: 'registry@sha256:12', size: 100Gi"), "registry.image", "not a digest"),
        (("node_port: 30500", "node_port: 80"), "registry.node_port", "30000"),
        (("size: 100Gi", f"login: {LOGIN}, size: 100Gi"), "registry", "cross the network in clear"),
        (("project_parallelism: 20", "project_parallelism: 60"), "argo.project_parallelism", "and all together 50"),
        (("  software:\n", f"  many: {{users: {MANY}}}\n  software:\n"), "projects", "and may have 3900"),
        (("  software:\n", "  kube-x:\n"), "projects.kube-x", "namespace of the factory itself"),
        (("  software:\n", "  registry:\n"), "projects.registry", "namespace of the factory itself"),
        (("  software:\n", "  calico-bench:\n"), "projects.calico-bench", "or is named like theirs"),
        (("  software:\n", "  system-upgrade:\n"), "projects.system-upgrade", "or is named like theirs"),
        (("factory[02-04]", "factory[01-03]"), "hosts.builders.ranges", "is in group control too"),
        (("storage: {provisioner: local_path}", "storage: {provisioner: none}"), "storage.provisioner", "needs a volume"),
    ],
)
def test_an_error_names_its_place(change: tuple[str, str], path: str, sentence: str) -> None:
    assert change[0] in TEXT
    with pytest.raises(SpecErrors) as caught:
        load_factory(TEXT.replace(*change))
    errors = {error.path: error for error in caught.value.errors}
    assert sentence in errors[path].problem
    assert errors[path].fix
    assert errors[path].line


def test_errors_come_together() -> None:
    with pytest.raises(SpecErrors) as caught:
        load_factory(TEXT.replace("v4.1.2", "v4.0.0").replace("30500", "1").replace('cpu: "128"', "cpu: 1.5"))
    assert len(caught.value.errors) == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no WorkflowTemplate"),
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n", "kind Secret"),
        ("apiVersion: v1\nkind: WorkflowTemplate\nmetadata: {name: x}\n", "kind WorkflowTemplate"),
        (TEMPLATE.replace("name: science", "name: ../etc"), "without a valid name"),
        (TEMPLATE.replace("spec:", "other:"), "has no spec"),
        ("!!python/object/apply:os.system [id]\n", "could not determine a constructor"),
        ("- x\n", "kind list"),
        (TEMPLATE + "---\n" + TEMPLATE.replace("science", "second"), "has 2 templates"),
    ],
)
def test_a_pipeline_file_is_hostile_until_checked(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    spec = load_factory(TEXT + 'pipelines: [{project: software, file: a.yaml, schedule: {cron: "0 2 * * *"}}]\n')
    with pytest.raises(SpecErrors, match=sentence):
        load_pipelines(spec, tmp_path)


def test_missing_files_and_repeated_templates_are_told_together(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TEMPLATE)
    (tmp_path / "b.yaml").write_text(TEMPLATE)
    files = ", ".join(f"{{project: software, file: {name}}}" for name in ("a.yaml", "b.yaml", "c.yaml"))
    with pytest.raises(SpecErrors) as caught:
        load_pipelines(load_factory(TEXT + f"pipelines: [{files}]\n"), tmp_path)
    problems = [error.problem for error in caught.value.errors]
    assert problems == ["WorkflowTemplate science of project software is in a.yaml too", "No such file or directory"]


def test_templates_above_the_limit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TEMPLATE + f"  description: {'x' * 450_000}\n")
    spec = load_factory(TEXT + "pipelines: [{project: software, file: a.yaml}]\n")
    with pytest.raises(PlanError, match="limit 400000"):
        compile_factory(spec, load_pipelines(spec, tmp_path))


def test_a_plan_is_pure_and_twenty_projects_fit_into_task_files() -> None:
    projects = "".join(f"  team-{number:02}: {{groups: [developers-of-team-{number:02}]}}\n" for number in range(18))
    spec = load_factory(TEXT.replace("projects:\n", f"projects:\n{projects}") + "share: {server: nas.example.org, path: /srv}\n")
    first, second = (compile_factory(spec, {}) for _ in range(2))
    assert first.digest == second.digest
    assert first.task_files == second.task_files


@pytest.mark.parametrize(
    ("pattern", "is_taken"),
    [
        ("clusterrolebindings/ada@example.org", True),
        ("clusterroles/system:team+gpu=all rights", True),
        ("images/cache/*", True),
        ("clusterroles/a%2Fb", False),
        ("clusterroles/[a-z]", False),
        ("clusterroles/a\\nb", False),
        ("clusterroles", False),
    ],
)
def test_contents_that_the_site_restores_have_the_names_of_objects(pattern: str, is_taken: bool) -> None:
    with nullcontext() if is_taken else pytest.raises(SpecErrors, match=r"rebuild\.restored"):
        assert load_factory(TEXT + f'rebuild: {{restored: ["{pattern}"]}}\n').rebuild.restored == (pattern,)


def projects_of(length: int, names: int) -> str:
    """Return a spec with twenty projects whose names have `length` characters, of as many users and the largest quotas."""
    amount, longest = "9999999999Gi", {"users": [f"user{number:03}@example.org" for number in range(names)]}
    most = {"quota": {"cpu": amount, "memory": amount, "storage": amount, "pods": 5000}, "pod": {"cpu": amount, "memory": amount}}
    projects = {f"team-{number:02}".ljust(length, "x"): {**most, "priority": 1_000_000, **longest} for number in range(20)}
    document = yaml.safe_load(TEXT)
    return json.dumps({**document, "projects": projects, "pipelines": [], "share": {"server": "nas", "path": "/srv"}}, indent=1)


@pytest.mark.parametrize(("length", "fits", "too_many"), [(7, 7, 8), (40, 4, 5), (63, 2, 3)])
def test_names_of_projects_count_as_those_of_developers_do(length: int, fits: int, too_many: int) -> None:
    spec = load_factory(projects_of(length, fits))
    assert max(map(len, compile_factory(spec, {}).task_files.values())) <= MAX_BYTES
    assert load_factory(projects_of(63, 0)).developers == {
        "projects": {f"team-{number:02}".ljust(63, "x"): [] for number in range(20)}
    }
    with pytest.raises(SpecErrors, match="and may have 3900"):
        load_factory(projects_of(length, too_many))


def test_nodes_pull_by_tls_and_the_login_of_the_registry_and_no_task_has_a_secret() -> None:
    spec = load_factory(TEXT.replace("size: 100Gi", f"tls: {TLS}, login: {LOGIN}, size: 100Gi"))
    plan = compile_factory(spec, {})
    assert {"registry_1_ca", "registry_1_password", *spec.registry.secrets} <= {file.name for file in plan.secrets}
    plays = [
        task.arguments["variables"]["rke2_registries"] for task in plan.tasks if task.stage == "rke2" and task.verb is Verb.PLAY
    ]
    access = {"endpoints": ["https://localhost:30500"], "username": "factory"}
    access["secrets"] = {"password": "rke2_registry_1_password", "ca": "rke2_registry_1_ca"}
    assert plays == [{"localhost:30500": access}] * 2
    (secrets,) = (task.arguments["secrets"] for task in plan.tasks if (task.stage, task.name) == ("factory_registry", "secrets"))
    assert sorted((entry["namespace"], entry["key"]) for entry in secrets) == [
        ("bringup-check", "password"),
        ("registry", "htpasswd"),
        ("registry", "tls.crt"),
        ("registry", "tls.key"),
    ]
