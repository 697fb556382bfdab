"""Delivery by Argo CD as tasks: their order, who owns what, how secrets and keys travel, and the least rights."""

from typing import Any

import pytest
import yaml

from steps.contract.task import MAX_BYTES, Verb, encode
from tests.unit.stages.test_operators import site
from workflows.stages import base_services, gpu_operator, host_access, slurm
from workflows.stages.stage import Stage, Step

ARGO_CD: dict[str, Any] = {"repo": "https://git.example.org/platform.git", "revision": "v1.4.0", "project": "platform"}
SSH: dict[str, Any] = {
    "repo": "git@git.example.org:platform.git",
    "credentials": {"env": "GIT_KEY"},
    "known_hosts": "./git_known_hosts",
}


def built(stage: Any = base_services, /, more: dict[str, Any] | None = None, **argo: Any) -> Stage:
    made = stage.build(site(delivery={"mode": "argo_cd", "argo_cd": ARGO_CD | argo}, **(more or {})))
    assert isinstance(made, Stage)
    return made


def step(name: str, **argo: Any) -> Step:
    return next(one for one in built(**argo).steps if one.name == name)


def rights(one: Step) -> set[tuple[str, str, str]]:
    return {(resource, verb, ",".join(rule.namespaces)) for rule in one.rules for resource in rule.resources for verb in rule.verbs}


def test_argo_cd_is_there_and_told_before_anything_is_delivered() -> None:
    names = [one.name for one in built().steps]
    assert names == [
        "argo_cd_install",
        "argo_cd",
        "delivery_settings",
        "publish",
        "delivery",
        "apply",
        "control",
        "functional",
        "judge",
    ]
    assert [one.after for one in built().steps[:-1]] == [(), *((name,) for name in names[:-2])]
    assert built().gates[:2] == ("base_services/argo_cd", "base_services/delivery")


def test_a_site_without_base_services_of_its_own_is_delivered_to_all_the_same() -> None:
    nothing = {"storage": {"provisioner": "none"}, "cert_manager": False, "monitoring_crds": False}
    made = built(more={"base_services": nothing, "slurm": {"kind": "none"}})
    assert [one.name for one in made.steps][-2:] == ["delivery", "judge"]


def test_a_release_is_expected_with_its_chart_and_its_place() -> None:
    seen = {one["name"]: one for one in step("control").task.expectations["releases"]}["cert-manager"]
    assert (seen["chart"], seen["project"], seen["server"]) == ("cert-manager", "platform", "https://kubernetes.default.svc")
    assert seen["repo"].startswith("https://")


@pytest.mark.parametrize(("quorum", "forgiven"), [("75%", True), ("all", False)])
def test_a_release_that_counts_nodes_is_judged_by_the_quorum(quorum: str, forgiven: bool) -> None:
    """Argo CD calls it Progressing for as long as one node is short; what counts no nodes has to be healthy."""
    more = {"quorum": {"default": quorum}}
    for stage, expected in ((gpu_operator, forgiven), (slurm, forgiven), (base_services, False)):
        for one in built(stage, more=more).steps:
            for release in one.task.expectations.get("releases", ()):
                if release.get("owner") == "argo_cd":
                    assert ("apps/DaemonSet" in release.get("by_quorum", ())) is expected, (stage.__name__, release["name"])


def test_kinds_that_count_nodes_and_no_others_are_spared() -> None:
    expected = built(gpu_operator, more={"quorum": {"default": "75%"}}).steps
    kinds = [release["by_quorum"] for one in expected for release in one.task.expectations.get("releases", ())]
    assert kinds[0] == ["apps/DaemonSet", "nvidia.com/ClusterPolicy", "nvidia.com/GPUCluster"]


def test_argo_cd_is_told_to_keep_the_health_of_resources() -> None:
    (chart,) = [item for item in step("argo_cd_install").task.arguments["objects"] if item["kind"] == "HelmChart"]
    params = yaml.safe_load(chart["spec"]["valuesContent"])["configs"]["params"]
    assert params == {"controller.resource.health.persist": "true"}


def test_argo_cd_itself_has_helm_controller_as_its_one_owner() -> None:
    kinds = {item["kind"] for item in step("argo_cd_install").task.arguments["objects"]}
    assert kinds == {"Namespace", "HelmChart"}
    (release,) = step("argo_cd").task.expectations["releases"]
    assert (release["name"], release["version"], release.get("owner", "helm_controller")) == (
        "argo-cd",
        "10.1.1",
        "helm_controller",
    )
    assert ("helmcharts", "create", "kube-system") in rights(step("argo_cd_install"))


def test_keys_of_argocd_cm_are_set_by_its_owner_and_by_one_only() -> None:
    """Installed by this run: in the chart's values, which would undo a patch. The site's own: a patch of our keys."""
    wanted = step("delivery").task.expectations["keys"]
    (chart,) = [item for item in step("argo_cd_install").task.arguments["objects"] if item["kind"] == "HelmChart"]
    assert all(key in chart["spec"]["valuesContent"] for key in wanted)
    assert "config_map" not in step("delivery_settings").task.arguments
    assert ("configmaps", "patch", "argocd") not in rights(step("delivery_settings"))
    patched = step("delivery_settings", install=False).task.arguments["config_map"]
    assert (patched["namespace"], patched["path"]) == ("argocd", "apps/environments/h200-16/bootstrap/argocd-cm.yaml")
    assert patched["keys"] == step("delivery", install=False).task.expectations["keys"]
    assert ("configmaps", "patch", "argocd") in rights(step("delivery_settings", install=False))


def test_the_sites_own_argo_cd_is_only_looked_at() -> None:
    made = built(install=False, namespace="gitops")
    assert made.steps[0].name == "argo_cd"
    assert "releases" not in made.steps[0].task.expectations
    assert made.steps[0].task.expectations["namespace"] == "gitops"
    assert {verb for _, verb, _ in rights(made.steps[0])} == {"get", "list"}


def test_credentials_travel_as_secret_files_by_name() -> None:
    cluster = site(delivery={"mode": "argo_cd", "argo_cd": ARGO_CD | SSH}).spec
    files = {file.name: file for file in host_access.secret_files(cluster)}
    assert (files["git_credentials"].variable, files["git_known_hosts"].path) == ("GIT_KEY", "./git_known_hosts")
    published = step("publish", **SSH).task.arguments
    assert (published["credentials"], published["known_hosts"]) == ("git_credentials", "git_known_hosts")
    secret = step("delivery_settings", **SSH).task.arguments["repository"]
    assert (secret["url"], secret["credentials"]) == (SSH["repo"], "git_credentials")
    assert step("delivery", **SSH).task.expectations["credentials"] is True
    settings = step("delivery_settings", **SSH)
    assert settings.task.arguments["known_hosts"] == {"namespace": "argocd", "host": "git.example.org", "file": "git_known_hosts"}
    assert {("secrets", "create", "argocd"), ("configmaps", "patch", "argocd")} <= set(rights(settings))
    plain = step("delivery_settings")
    assert "repository" not in plain.task.arguments
    assert not {resource for one in (plain, step("delivery")) for resource, _, _ in rights(one)} & {"secrets"}
    assert "repo" not in step("delivery").task.arguments
    assert ("secrets", "list", "argocd") in rights(step("delivery", **SSH))


def test_the_ca_goes_to_the_pipeline_and_to_argo_cd_and_is_read_back() -> None:
    ca = {"repo": "https://Git.example.org:8443/platform.git", "ca": {"file": "./ca.pem"}}
    files = {file.name: file for file in host_access.secret_files(site(delivery={"mode": "argo_cd", "argo_cd": ARGO_CD | ca}).spec)}
    assert files["git_ca"].path == "./ca.pem"
    assert step("publish", **ca).task.arguments["ca"] == "git_ca"
    told, read = step("delivery_settings", **ca), step("delivery", **ca)
    wanted = {"namespace": "argocd", "host": "Git.example.org", "file": "git_ca"}
    assert told.task.arguments["certificates"] == read.task.arguments["certificates"] == wanted
    assert read.task.expectations["certificates"] is True
    assert ("configmaps", "patch", "argocd") in rights(told)
    assert "certificates" not in step("delivery").task.expectations


def test_publishing_needs_nothing_of_the_target_and_names_its_tree() -> None:
    one = step("publish")
    assert one.rules == ()
    assert one.task.verb is Verb.PUBLISH
    assert one.task.arguments["owned"] == ["apps/environments/h200-16/"]
    assert one.task.arguments["kept"] == ["apps/environments/h200-16/overlay/"]
    other = built(more={"overrides": {"cert_manager": {"values": {"replicaCount": 2}}}})
    changed = next(two for two in other.steps if two.name == "publish")
    assert changed.task.input_digest != one.task.input_digest


def test_a_commit_carries_the_values_in_the_applications() -> None:
    made = built(revision="0123456789abcdef0123456789abcdef01234567")
    control = next(one for one in made.steps if one.name == "control")
    assert {one["revision"] for one in control.task.expectations["releases"]} == {""}
    assert control.task.expectations["root_app"]["revision"] == "0123456789abcdef0123456789abcdef01234567"
    assert not any("commit to" in change.what for change in made.changes)


def test_slurm_has_one_root_over_operator_and_cluster() -> None:
    names = [one.name for one in built(slurm).steps]
    assert names[:3] == ["apply", "charts", "control"]
    by_name = {one.name: one for one in built(slurm).steps}
    assert "root_app" not in by_name["charts"].task.expectations
    assert by_name["control"].task.expectations["root_app"]["name"] == "bringup-slurm"
    assert len([item for item in by_name["apply"].task.arguments["objects"] if item["kind"] == "Application"]) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"scheduler": {"gang": "kai", "quota": "kueue", "queues": [{"name": "a", "namespace": "a", "gpus": 8}]}},
        {"sharing": {"mode": "dra"}},
        {"scheduler": {"gang": "volcano", "quota": "kueue", "queues": [{"name": "a", "namespace": "a", "gpus": 8}]}},
    ],
)
@pytest.mark.parametrize("install", [True, False])
def test_the_tasks_of_a_full_cluster_are_small_enough(more: dict[str, Any], install: bool) -> None:
    for one in built(more=more, install=install, **SSH).steps:
        assert len(encode(one.task)) <= MAX_BYTES
