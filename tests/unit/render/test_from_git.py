"""The schedule of a node image: one pod with few rights and rules of its own, which is not itself a run of the pipeline."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit import small_image
from workflows import image
from workflows.app.specs.manifests import rendered
from workflows.nodeimage.image_plan import compile_image
from workflows.plan import diff, show
from workflows.plan.model import Plan
from workflows.render import from_git, manifest_policy, starts, unknown_fields
from workflows.render.bundle import Bundle
from workflows.render.steps import Settings

SOURCE = {"repository": "https://git.example.org/site.git", "branch": "stable", "path": "nodes/image.yaml"}
OPENED = {"credentials": {"name": "git", "key": "token"}, "ca": {"name": "trust", "key": "ca.pem"}}
SETTINGS = Settings(namespace="images", image="r.example.org/steps:1", builder="r.example.org/builder:1", pull_secret="pull")
PUBLISH = {
    **small_image.SPEC["publish"],
    "ssh": {"host": "boot.example.org", "key": {"secret": {"name": "boot", "key": "key"}}, "known_hosts": "./known_hosts"},
}


def planned(folder: Path, **more: Any) -> Plan:
    schedule = {"cron": "0 2 * * *", "source": {**SOURCE, **more.pop("source", {})}}
    return compile_image(small_image.spec(folder, publish=PUBLISH, schedule=schedule, **more), small_image.recipe(), {})


def made(folder: Path, **more: Any) -> Bundle:
    return rendered(planned(folder, **more), image.build, SETTINGS)


def cron(bundle: Bundle) -> dict[str, Any]:
    (found,) = [one for one in bundle.starts or () if one["kind"] == "CronWorkflow"]
    return found


def starter(bundle: Bundle) -> dict[str, Any]:
    """Return the template of the pod that reads Git, which the schedule refers to."""
    (template,) = starts.starter_templates(bundle.starts or ())
    assert cron(bundle)["spec"]["workflowSpec"] == {"workflowTemplateRef": {"name": template["metadata"]["name"]}}
    return template


def test_its_one_pod_reads_the_branch_and_names_the_images_of_the_installation(tmp_path: Path) -> None:
    spec = starter(made(tmp_path, source=OPENED))["spec"]
    (template,) = spec["templates"]
    assert template["container"]["command"] == ["python", "-m", "workflows"]
    assert template["container"]["args"] == [
        *("image", "from-git", "--branch", "stable", "--name", "lab-nodes", "--namespace", "images"),
        *("--image", "r.example.org/steps:1", "--builder-image", "r.example.org/builder:1"),
        *("--secrets", "/bringup/secrets", "--may-use", "publish_ssh_key=boot/key", "--starter", "{{workflow.name}}"),
        *("--", "https://git.example.org/site.git", "nodes/image.yaml"),
    ]
    assert template["container"]["image"] == "r.example.org/builder:1"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert {"name": "BRINGUP_PULL_SECRET", "value": "pull"} in template["container"]["env"]
    (secrets,) = [one["projected"]["sources"] for one in spec["volumes"] if "projected" in one]
    assert [(one["secret"]["name"], one["secret"]["items"][0]) for one in secrets] == [
        ("git", {"key": "token", "path": "credentials"}),
        ("trust", {"key": "ca.pem", "path": "ca"}),
    ]


def test_what_the_installed_spec_says_of_secrets_and_approvals_is_what_holds(tmp_path: Path) -> None:
    """So that no commit changes it: the pod has it from whoever installed the schedule."""
    told = {"webhook": {"secret": {"name": "chat", "key": "url"}}}
    key = f"ssh-ed25519 AAAAC3{'x' * 60} grace@example.org"
    secrets = {"license": {"secret": {"name": "compiler", "key": "file"}}}
    spec = {"approvers": [key, f"ssh-ed25519 AAAAC3{'y' * 60} ada@example.org"], "announce": told}
    (template,) = starter(made(tmp_path, approval=spec, secrets=secrets))["spec"]["templates"]
    words = template["container"]["args"]
    given = [(name, words[at + 1]) for at, name in enumerate(words) if name in ("--may-use", "--approver")]
    assert given == [
        *(("--may-use", one) for one in ("announce.image_publish=chat/url", "license=compiler/file", "publish_ssh_key=boot/key")),
        ("--approver", f"ada@example.org ssh-ed25519 AAAAC3{'y' * 60}"),
        ("--approver", f"grace@example.org ssh-ed25519 AAAAC3{'x' * 60}"),
    ]


def test_it_reads_git_by_the_proxy_of_the_spec(tmp_path: Path) -> None:
    (template,) = starter(made(tmp_path, proxy={"http": "http://proxy.example.org:3128"}))["spec"]["templates"]
    env = {one["name"]: one["value"] for one in template["container"]["env"]}
    assert env["https_proxy"] == env["HTTP_PROXY"] == "http://proxy.example.org:3128"


def test_one_start_at_a_time_with_little_room_and_its_last_words_in_its_message(tmp_path: Path) -> None:
    spec = starter(made(tmp_path))["spec"]
    assert spec["synchronization"] == {"mutexes": [{"name": "starts-lab-nodes"}]}, "not that of its runs, which it would wait for"
    assert {"name": "out", "emptyDir": {"sizeLimit": "1Gi"}} in spec["volumes"]
    assert spec["templates"][0]["container"]["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_known_hosts_are_no_secret_and_travel_in_a_config_map(tmp_path: Path) -> None:
    (sources,) = [one["projected"]["sources"] for one in made(tmp_path).template["spec"]["volumes"] if "projected" in one]
    named = next(one["configMap"] for one in sources if "configMap" in one)
    assert (named["name"][:15], named["items"]) == (
        "bringup-public-",
        [{"key": "publish_known_hosts", "path": "publish_known_hosts"}],
    )
    assert [one["secret"]["name"] for one in sources if "secret" in one] == ["boot"]


def test_an_open_repository_needs_no_secrets(tmp_path: Path) -> None:
    (template,) = starter(made(tmp_path))["spec"]["templates"]
    assert "--secrets" not in template["container"]["args"]
    assert [mount["name"] for mount in template["container"]["volumeMounts"]] == ["out"]


def test_it_is_no_run_of_the_pipeline_else_it_would_supersede_itself(tmp_path: Path) -> None:
    found = cron(made(tmp_path))
    assert found["metadata"]["labels"] == {"bringup/pipeline": "image", "bringup/cluster": "lab-nodes"}
    assert found["spec"]["workflowMetadata"]["labels"] == {"bringup/starts": "image", "bringup/cluster": "lab-nodes"}
    assert "annotations" not in found["metadata"], "Argo writes them back at each tick"
    assert "bringup/plan" not in found["spec"]["workflowMetadata"]["annotations"], "what it starts has the plan of that night"


def test_its_account_may_submit_and_not_change_who_may_do_what(tmp_path: Path) -> None:
    bundle = made(tmp_path)
    account, role, binding = [one for one in bundle.starts or () if not one["kind"].endswith(("CronWorkflow", "WorkflowTemplate"))]
    assert account["automountServiceAccountToken"] is True
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "bringup-schedule-lab-nodes", "namespace": "images"}]
    assert {resource for rule in role["rules"] for resource in rule["resources"]} == {
        *("workflows", "workflowtemplates", "configmaps", "serviceaccounts", "persistentvolumeclaims"),
    }, "no Secrets: known hosts are none"
    assert not [rule for rule in role["rules"] if {"*", "delete", "escalate", "bind"} & set(rule["verbs"])]
    assert "uses every account and Secret of this namespace" in role["metadata"]["annotations"]["bringup/note"]
    submitter = next(one for one in bundle.rbac if one["kind"] == "Role" and one["metadata"]["name"] == "bringup-submitter")
    may = {(resource, verb) for rule in submitter["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    asked = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert asked <= may, "nobody may grant what he has not"


def test_argo_knows_every_field(tmp_path: Path) -> None:
    assert not [field for one in made(tmp_path, source=OPENED).starts or () for field in unknown_fields.unknown_fields(one)]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda spec: spec["templates"].append(spec["templates"][0]), "is one container"),
        (lambda spec: spec.pop("executor"), "spec.executor.serviceAccountName is missing"),
        (lambda spec: spec["templates"][0]["container"]["args"].__setitem__(1, "build"), "command must be"),
        (lambda spec: spec["templates"][0].pop("activeDeadlineSeconds"), "a pod that hangs must end"),
        (lambda spec: spec["templates"][0].pop("retryStrategy"), "only exit code 75 and lost attempts"),
        (lambda spec: spec["templates"][0]["container"]["securityContext"].update(runAsUser=0), "only verb build is root"),
        (lambda spec: spec["templates"][0]["container"]["volumeMounts"][0].update(mountPath="/etc"), "must lie below /bringup/"),
    ],
)
def test_more_than_that_is_refused(tmp_path: Path, change: Any, sentence: str) -> None:
    template = starter(made(tmp_path))
    assert manifest_policy.starter_breaches(template) == ()
    change(template["spec"])
    assert sentence in "\n".join(manifest_policy.starter_breaches(template))


def test_where_it_reads_from_is_shown_and_a_difference_and_no_part_of_the_plan(tmp_path: Path) -> None:
    one, other = planned(tmp_path), planned(tmp_path, source={"branch": "next"})
    assert one.digest == other.digest
    assert diff.differences(one, other) == ("schedule.source.branch: stable → next",)
    assert show.outline(one)[-1].endswith("from branch stable of https://git.example.org/site.git: 0 2 * * * (UTC)")
    assert show.starts(one)["schedule"]["source"] == SOURCE


def test_an_approval_that_nobody_is_told_of_is_a_warning(tmp_path: Path) -> None:
    (issue,) = show.issues(planned(tmp_path, approval={"approvers": ["ada@example.org"]}))
    assert (issue["path"], issue["severity"]) == ("approval.announce", "warning")
    assert "a run that the schedule starts waits before image_publish, and no approver hears of it" in issue["problem"]


def test_what_is_installed_is_named_by_all_that_its_tasks_find(tmp_path: Path) -> None:
    """One image from two commits gives one plan and two ConfigMaps, because the file that records its origin differs."""
    spec = small_image.spec(tmp_path)
    here, there = (compile_image(spec, small_image.recipe(origin=origin), {}) for origin in ("3f2a", "9b1c"))
    assert here.digest == there.digest
    one, other = (rendered(plan, image.build, SETTINGS) for plan in (here, there))
    assert one.config_maps[0]["metadata"]["name"] != other.config_maps[0]["metadata"]["name"]
    assert one.template["metadata"]["name"] != other.template["metadata"]["name"]
    mounted = next(volume["configMap"]["name"] for volume in one.template["spec"]["volumes"] if volume["name"] == "tasks")
    assert mounted == one.config_maps[0]["metadata"]["name"]
    assert from_git.account_name(here.name) == "bringup-schedule-lab-nodes"
