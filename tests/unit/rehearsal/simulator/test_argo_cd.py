"""The simulated Argo CD: roots and releases from a real bare repository, with the status that the real controller writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.clients.git import repositories
from steps.clients.git.git_access import GitAccess, local_repository
from steps.clients.git.repositories import Author
from tests.unit.rehearsal.simulator.harness import Make, User
from workflows.rehearsal.simulator.api.api_kinds import (
    APP_PROJECTS,
    APPLICATIONS,
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    Obj,
    Ref,
    definitions,
)
from workflows.rehearsal.simulator.charts.argo_cd_target import HEALTH_KEY
from workflows.rehearsal.simulator.machines.simulated_fleet import SiteArgoCd

URL = "https://git.example.org/platform/apps.git"
STAGE = "apps/environments/lab/stages/base-services"
SERVER = "https://kubernetes.default.svc"
WHO = Author(name="ada", mail="ada@example.org", when=1_795_000_000)


def release(name: str, chart: str, namespace: str, wave: int = 0, **values: Any) -> dict[str, str]:
    """The files of one release."""
    place = f"apps/environments/lab/values/{name}.yaml"
    source = {"repoURL": "https://charts.example.org", "chart": chart, "targetRevision": "v1.0.0"}
    app = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": "argocd", "annotations": {"argocd.argoproj.io/sync-wave": str(wave)}},
        "spec": {
            "project": "platform",
            "destination": {"server": SERVER, "namespace": namespace},
            "sources": [
                source | {"helm": {"releaseName": name, "valueFiles": [f"$values/{place}"]}},
                {"repoURL": URL, "targetRevision": "v1", "ref": "values"},
            ],
        },
    }
    return {f"{STAGE}/{name}.yaml": yaml.safe_dump(app), place: yaml.safe_dump(values)}


FIRST = release("cert-manager", "cert-manager", "cert-manager", crds={"enabled": True})
SECOND = release("local-path-provisioner", "local-path-provisioner", "local-path-storage", 1)


def published(root: Path, files: dict[str, str], names: list[str], tag: str = "v1") -> str:
    tree = files | {f"{STAGE}/kustomization.yaml": yaml.safe_dump({"resources": [f"{name}.yaml" for name in names]})}
    with repositories.open_repository(GitAccess(url=URL, local=local_repository(root, URL))) as repo:
        tip = repo.tip("main")
        made = repo.commit(tip, dict(tree), "stage", WHO)
        repo.push({"refs/heads/main": (tip, made), f"refs/tags/{tag}": ("", made)})
    return made


@pytest.fixture
def user(make: Make, tmp_path: Path) -> User:
    """A cluster with the site's own Argo CD, whose settings have our health of Applications."""
    made = make(agents=1, git_root=tmp_path / "git")
    made.world.fleet.argo_cd = SiteArgoCd(namespace="argocd", version="3.4")
    made.bring_up()
    made.api.merge(CONFIG_MAPS, Ref("argocd", "argocd-cm"), {"data": {HEALTH_KEY: "return hs"}})
    for name in ("platform", "platform-roots"):
        spec = {"sourceRepos": ["https://*"], "destinations": [{"server": SERVER, "namespace": "*"}]}
        made.api.create(APP_PROJECTS, {"metadata": {"name": name, "namespace": "argocd"}, "spec": spec})
    return made


def apply_root(user: User, revision: str = "v1", seconds: float = 300) -> None:
    source = {"repoURL": URL, "path": STAGE, "targetRevision": revision}
    spec = {"project": "platform-roots", "source": source, "destination": {"server": SERVER, "namespace": "argocd"}}
    meta = {"name": "bringup-base-services", "namespace": "argocd"}
    user.api.create(APPLICATIONS, {"metadata": meta, "spec": spec})
    user.simulator.advance(seconds)


def read(user: User, name: str) -> Obj:
    found = user.api.get(APPLICATIONS, name, "argocd")
    assert found is not None
    return found


def state(user: User, name: str) -> tuple[str, str, str]:
    status = read(user, name)["status"]
    return status["sync"]["status"], status.get("operationState", {}).get("phase", ""), status["health"]["status"]


def test_a_root_brings_releases_that_bring_workloads(user: User, tmp_path: Path) -> None:
    commit = published(tmp_path / "git", FIRST | SECOND, ["cert-manager", "local-path-provisioner"])
    apply_root(user)
    for name in ("bringup-base-services", "cert-manager", "local-path-provisioner"):
        assert state(user, name) == ("Synced", "Succeeded", "Healthy")
    root = read(user, "bringup-base-services")["status"]
    assert root["sync"]["revision"] == root["operationState"]["syncResult"]["revision"] == commit
    assert [one["name"] for one in root["resources"]] == ["cert-manager", "local-path-provisioner"]
    assert read(user, "cert-manager")["status"]["sync"]["revisions"] == ["v1.0.0", commit]
    deployment = user.api.get(DEPLOYMENTS, "cert-manager", "cert-manager")
    assert deployment is not None
    notes = deployment["metadata"]["annotations"]
    assert notes["argocd.argoproj.io/tracking-id"] == "cert-manager:apps/Deployment:cert-manager/cert-manager"
    assert "meta.helm.sh/release-name" not in notes


def test_at_rest_nothing_is_written(user: User, tmp_path: Path) -> None:
    published(tmp_path / "git", FIRST, ["cert-manager"])
    apply_root(user, seconds=600)
    versions = {name: read(user, name)["metadata"]["resourceVersion"] for name in ("cert-manager", "bringup-base-services")}
    user.world.wake()
    user.simulator.advance(600)
    assert versions == {name: read(user, name)["metadata"]["resourceVersion"] for name in versions}


def test_a_wave_waits_for_the_one_before(user: User, tmp_path: Path) -> None:
    published(tmp_path / "git", FIRST | SECOND, ["cert-manager", "local-path-provisioner"])
    user.world.set_faults([("cert_manager_webhook_crash", ())])
    apply_root(user, seconds=900)
    assert state(user, "cert-manager")[2] == "Progressing"
    assert user.api.get(APPLICATIONS, "local-path-provisioner", "argocd") is None
    assert state(user, "bringup-base-services")[1] == "Running"
    user.world.set_faults([])
    user.simulator.advance(300)
    assert state(user, "local-path-provisioner") == ("Synced", "Succeeded", "Healthy")


def test_without_a_health_of_applications_waves_do_not_wait(user: User, tmp_path: Path) -> None:
    published(tmp_path / "git", FIRST | SECOND, ["cert-manager", "local-path-provisioner"])
    user.api.merge(CONFIG_MAPS, Ref("argocd", "argocd-cm"), {"data": {HEALTH_KEY: None}})
    user.world.set_faults([("cert_manager_webhook_crash", ())])
    apply_root(user)
    assert state(user, "local-path-provisioner")[0] == "Synced"
    assert state(user, "bringup-base-services") == ("Synced", "Succeeded", "Healthy")  # which says nothing


def test_what_git_has_no_more_is_pruned_at_the_next_revision(user: User, tmp_path: Path) -> None:
    published(tmp_path / "git", FIRST | SECOND, ["cert-manager", "local-path-provisioner"])
    apply_root(user)
    second = published(tmp_path / "git", FIRST, ["cert-manager"], "v2")
    user.api.merge(APPLICATIONS, Ref("argocd", "bringup-base-services"), {"spec": {"source": {"targetRevision": "v2"}}})
    user.simulator.advance(300)
    assert user.api.get(APPLICATIONS, "local-path-provisioner", "argocd") is None
    assert read(user, "bringup-base-services")["status"]["sync"]["revision"] == second


@pytest.mark.parametrize(
    ("revision", "files", "names", "said"),
    [
        ("v9", FIRST, ["cert-manager"], "unable to resolve 'v9' to a commit SHA"),
        ("v1", FIRST, ["other"], "accumulating resources from 'other.yaml'"),
    ],
)
def test_what_cannot_be_generated_is_a_comparison_error_behind_healthy(
    user: User, tmp_path: Path, revision: str, files: dict[str, str], names: list[str], said: str
) -> None:
    published(tmp_path / "git", files, names)
    apply_root(user, revision)
    status = read(user, "bringup-base-services")["status"]
    assert (status["sync"]["status"], status["health"]["status"]) == ("Unknown", "Healthy")
    assert [one["type"] for one in status["conditions"]] == ["ComparisonError"]
    assert said in status["conditions"][0]["message"]


def test_a_project_that_is_missing_refuses(user: User, tmp_path: Path) -> None:
    published(tmp_path / "git", FIRST, ["cert-manager"])
    user.api.delete(APP_PROJECTS, Ref("argocd", "platform"))
    apply_root(user)
    conditions = read(user, "cert-manager")["status"]["conditions"]
    assert conditions[0]["type"] == "InvalidSpecError"
    assert "project platform which does not exist" in conditions[0]["message"]


def test_a_sync_that_used_up_its_retries_is_not_tried_again_at_the_same_revision(user: User, tmp_path: Path) -> None:
    files = release("network-operator", "network-operator", "nvidia-network-operator", nfd={"enabled": False})
    place = f"{STAGE}/network-operator.yaml"
    app = yaml.safe_load(files[place])
    app["spec"]["syncPolicy"] = {"retry": {"limit": 2}}
    published(tmp_path / "git", files | {place: yaml.safe_dump(app)}, ["network-operator"])
    apply_root(user, seconds=600)
    assert state(user, "network-operator")[1] == "Failed"
    for definition in definitions("nfd.k8s-sigs.io"):
        user.world.ensure(CRDS, definition)
    user.simulator.advance(600)
    assert state(user, "network-operator")[1] == "Failed"
    user.api.merge(APPLICATIONS, Ref("argocd", "network-operator"), {"spec": {"syncPolicy": {"retry": {"limit": 3}}}})
    user.simulator.advance(300)
    assert state(user, "network-operator")[1] != "Failed"


def test_a_kind_that_nobody_serves_fails_the_sync(user: User, tmp_path: Path) -> None:
    published(
        tmp_path / "git",
        release("network-operator", "network-operator", "nvidia-network-operator", nfd={"enabled": False}),
        ["network-operator"],
    )
    apply_root(user)
    status = read(user, "network-operator")["status"]
    assert status["operationState"]["phase"] == "Failed"
    assert "could not find nfd.k8s-sigs.io/NodeFeatureRule" in status["operationState"]["syncResult"]["resources"][0]["message"]
