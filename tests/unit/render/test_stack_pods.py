"""Pods of a stack that publish by a volume claim, the schedule that builds one from Git, and specs that pods cannot build."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit import small_stack
from workflows import stack
from workflows.app.branch_build import Bounds, OutOfBounds
from workflows.app.specs.manifests import rendered
from workflows.app.stacks.stack_branch import PodLimits
from workflows.plan.model import Plan
from workflows.render import from_git, manifest_policy, starts
from workflows.render.bundle import Bundle
from workflows.render.steps import Settings
from workflows.softwarestack.stack_build_plan import compile_stack
from workflows.spec import SpecErrors

ROOT = "/srv/stacks"
PUBLISH = {"root": ROOT, "claim": "share", "claim_folder": "hpc/stacks"}
SOURCE = {"repository": "https://git.example.org/site.git", "branch": "stable", "path": "tools/stack.yaml"}
SCHEDULE = {"cron": "0 2 * * *", "source": SOURCE}
SETTINGS = Settings(namespace="software", image="r.example.org/steps:1", builder="r.example.org/stacks:1")
MOUNT = {"name": "published", "mountPath": ROOT, "subPath": "hpc/stacks"}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000"


def planned(folder: Path, **more: Any) -> Plan:
    spec, resolved = small_stack.resolved(folder, **({"publish": PUBLISH} | more))
    return compile_stack(spec, resolved, resolved.planned(frozenset()))


def made(folder: Path, **more: Any) -> Bundle:
    return rendered(planned(folder, **more), stack.build, SETTINGS)


def mounts(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the mounts of the published folder, by the name of their template."""
    containers = {template["name"]: template["container"] for template in spec["templates"] if "container" in template}
    mounted = {
        name: [mount for mount in container["volumeMounts"] if mount["name"] == "published"]
        for name, container in containers.items()
    }
    return {name: listed for name, listed in mounted.items() if listed}


def test_the_pod_that_publishes_has_the_folder_at_the_path_that_binaries_embed_and_no_other_pod_has_it(tmp_path: Path) -> None:
    spec = made(tmp_path).template["spec"]
    assert mounts(spec) == {"stack-publish-version": [MOUNT]}
    assert {"name": "published", "persistentVolumeClaim": {"claimName": "share"}} in spec["volumes"]
    without, whole = (planned(tmp_path, publish={"root": ROOT} | claim) for claim in ({}, {"claim": "share"}))
    assert not mounts(rendered(without, stack.build, SETTINGS).template["spec"])
    assert len({planned(tmp_path).digest, without.digest, whole.digest}) == 3, "what a pod sees is part of the plan"


def test_the_schedule_starts_one_pod_that_may_read_the_folder_and_has_the_limits_of_the_installation(tmp_path: Path) -> None:
    secret = {"secret": {"name": "signing", "key": "ed25519"}}
    publish = {**PUBLISH, "sign": secret, "signers": [KEY]}
    bundle = made(tmp_path, schedule=SCHEDULE, publish=publish, approval={"approvers": ["ada@example.org"]})
    account, role, _, template, cron = bundle.starts or ()
    assert (account["metadata"]["name"], template["metadata"]["name"], cron["metadata"]["name"]) == (
        "bringup-stack-schedule-lab-tools",
        "stack-lab-tools-from-git",
        "stack-lab-tools",
    )
    assert account["metadata"]["name"] != from_git.account_name("lab-tools"), "an image of this name has an account of its own"
    assert "secrets" not in {resource for rule in role["rules"] for resource in rule["resources"]}
    assert cron["spec"]["workflowSpec"] == {"workflowTemplateRef": {"name": "stack-lab-tools-from-git"}}
    assert cron["spec"]["workflowMetadata"]["labels"] == template["metadata"]["labels"]
    assert template["metadata"]["labels"] == {"bringup/starts": "stack", "bringup/cluster": "lab-tools"}
    assert mounts(template["spec"]) == {"from-git": [{**MOUNT, "readOnly": True}]}
    (pod,) = template["spec"]["templates"]
    assert pod["container"]["args"] == [
        *("stack", "from-git", "--branch", "stable", "--name", "lab-tools", "--namespace", "software"),
        *("--image", "r.example.org/steps:1", "--builder-image", "r.example.org/stacks:1"),
        *("--engine", "argo", "--root", ROOT, "--claim", "share/hpc/stacks"),
        *("--may-use", "stack_sign_key=signing/ed25519", "--approver", "ada@example.org", "--starter", "{{workflow.name}}"),
        *("--", "https://git.example.org/site.git", "tools/stack.yaml"),
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda mount: mount.pop("readOnly"), f"mount {ROOT} must lie below /bringup/"),
        (lambda mount: mount.update(mountPath="/etc"), f"path {ROOT} must start with /bringup/"),
        (lambda mount: mount.update(name="out"), f"mount {ROOT} must lie below /bringup/"),
    ],
    ids=["writable", "elsewhere", "another volume"],
)
def test_the_pod_of_a_schedule_only_reads_the_published_folder(tmp_path: Path, change: Any, sentence: str) -> None:
    (template,) = starts.starter_templates(made(tmp_path, schedule=SCHEDULE).starts or ())
    assert manifest_policy.starter_breaches(template) == ()
    change(next(mount for mount in template["spec"]["templates"][0]["container"]["volumeMounts"] if mount["name"] == "published"))
    assert sentence in "\n".join(manifest_policy.starter_breaches(template))


def test_a_pod_that_does_not_publish_may_not_mount_the_folder(tmp_path: Path) -> None:
    template = made(tmp_path).template
    assert manifest_policy.breaches(template) == ()
    for entry in template["spec"]["templates"]:
        if entry["name"] == "stack-test-test":
            entry["container"]["volumeMounts"].append(MOUNT)
    assert f"mount {ROOT} must lie below /bringup/" in "\n".join(manifest_policy.breaches(template))


FILE = {"file": "./sign_ed25519"}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"publish": {"root": ROOT}}, "add publish.claim, a PersistentVolumeClaim of the home cluster with that folder"),
        ({"cache": "/srv/cache"}, "a schedule builds in pods, and they have none of the folder cache"),
        ({"sources": ["/srv/sources"]}, "a schedule builds in pods, and they have none of the folders of sources"),
        ({"publish": {**PUBLISH, "sign": FILE, "signers": [KEY]}}, "and stack_sign_key is of one machine"),
        ({"package_signing": {"sign": FILE, "signers": [KEY]}}, "and package_sign_key is of one machine"),
        ({"approval": {"approvers": ["ada"], "announce": {"webhook": FILE}}}, "and approval.announce.webhook is of one machine"),
        ({"schedule": {"cron": "0 2 * * *"}}, "schedule.source"),
        ({"publish": {"root": "/usr", "claim": "share"}}, "a volume at /usr would hide /usr/bin of the pods"),
        ({"publish": {"root": "/etc/stacks", "claim": "share"}}, "a volume at /etc/stacks would hide /etc of the pods"),
        ({"publish": {"root": "/opt/bringup/a", "claim": "share"}}, "would hide /opt/bringup of the pods"),
        ({"publish": {"root": ROOT, "claim_folder": "stacks"}}, "claim_folder is a folder of no volume"),
        ({"publish": {**PUBLISH, "claim_folder": "../stacks"}}, "publish.claim_folder"),
        ({"publish": {**PUBLISH, "claim": "{{a}}"}}, "publish.claim"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_pods_cannot_build_or_publish_is_refused_before_a_schedule_is_installed(
    tmp_path: Path, more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SpecErrors) as caught:
        planned(tmp_path, **({"schedule": SCHEDULE} | more))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (PodLimits(root="/srv/other"), f"the spec has publish.root {ROOT}, and the schedule was installed with /srv/other"),
        (PodLimits(claim="share"), "the spec has publish.claim share/hpc/stacks, and the schedule was installed with share"),
        (PodLimits(builder="r.example.org/other:1"), "the spec has builder registry.example.org/builder:2026.11, and"),
        (PodLimits(cache="oci://r.example.org/a"), "the spec has cache (none), and the schedule was installed with oci:"),
    ],
    ids=["root", "claim", "builder", "cache"],
)
def test_a_commit_publishes_nowhere_else_and_builds_in_no_other_image(tmp_path: Path, limits: PodLimits, sentence: str) -> None:
    spec, _ = small_stack.resolved(tmp_path, publish=PUBLISH)
    with pytest.raises(OutOfBounds) as caught:
        limits.check(spec)
    assert sentence in str(caught.value)
    assert "bringup stack build SPEC --engine argo" in caught.value.hint
    PodLimits(root=ROOT, claim="share/hpc/stacks", builder="registry.example.org/builder:2026.11").check(spec)
    PodLimits().check(spec)


def test_a_schedule_hands_the_password_to_one_registry_and_each_secret_out_in_its_role_alone(tmp_path: Path) -> None:
    cache = "oci://r.example.org/hpc/cache"
    login = {"username": "builder", "password": {"secret": {"name": "signing", "key": "ed25519"}}}
    publish = {**PUBLISH, "sign": {"secret": {"name": "signing", "key": "ed25519"}}, "signers": [KEY]}
    template = (made(tmp_path, schedule=SCHEDULE, publish=publish, cache=cache, cache_access=login).starts or ())[3]
    arguments = template["spec"]["templates"][0]["container"]["args"]
    given = [(name, arguments[at + 1]) for at, name in enumerate(arguments) if name in ("--may-use", "--cache")]
    assert given == [
        ("--cache", cache),
        ("--may-use", "cache_password=signing/ed25519"),
        ("--may-use", "stack_sign_key=signing/ed25519"),
    ]
    plan = planned(tmp_path, publish=publish, cache=cache, cache_access=login)
    spec, _ = small_stack.resolved(tmp_path, publish=publish, cache=cache, cache_access=login)
    with pytest.raises(OutOfBounds, match="cache_password=signing/ed25519 of the cluster's Secrets, which the schedule may not"):
        Bounds(secrets=("stack_sign_key=signing/ed25519",)).check(plan, tmp_path / "stack.yaml", tmp_path, "stack")
    with pytest.raises(OutOfBounds, match="to any registry"):
        PodLimits().check(spec)
    PodLimits(cache=cache).check(spec)
