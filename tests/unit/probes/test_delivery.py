"""Argo CD as the probes read it: its workloads by label, its settings as digests, and nothing of a Secret but its address."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.clients.kube.client import Kube
from steps.contract.delivery import text_digest
from steps.stages.base_services import probe as base_services
from steps.stages.base_services.contract import ArgoCdObservation, DeliveryObservation
from steps.stages.shared import probe_applications
from steps.stages.shared.kube_reader import Scope
from tests.unit.rehearsal.apiserver.cluster_client import Cluster
from workflows.rehearsal.apiserver import serve_in_thread

CANARY = "canary-7f3a9b2c1d"
ROOT = {
    "metadata": {"name": "bringup-gang"},
    "spec": {"source": {"repoURL": "https://git.example.org/apps.git", "path": "apps/x", "targetRevision": "v1"}},
    "status": {
        "reconciledAt": "2026-11-21T12:00:00Z",
        "sync": {"status": "Synced", "revision": "abc"},
        "health": {"status": "Healthy"},
        "operationState": {"phase": "Succeeded", "syncResult": {"revision": "abc", "resources": []}},
        "resources": [
            {"group": "argoproj.io", "kind": "Application", "name": "kueue", "status": "Synced"},
            {"kind": "ConfigMap", "name": "x", "status": "Synced"},
        ],
    },
}


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[tuple[Kube, Cluster]]:
    with serve_in_thread() as running:
        (tmp_path / "kubeconfig").write_text(running.kubeconfig)
        user = Cluster(running.url, running.token)
        yield Kube.from_file(tmp_path / "kubeconfig"), user
        user.close()


def test_a_root_is_read_with_its_place_and_its_children() -> None:
    found = probe_applications.application(msgspec.convert(ROOT, probe_applications.RawApplication, strict=False))
    assert (found.repo, found.path, found.revision) == ("https://git.example.org/apps.git", "apps/x", "v1")
    assert (found.revisions, found.synced_revisions, found.children, found.version) == (("abc",), ("abc",), ("kueue",), "")


def test_a_secret_gives_away_nothing_but_its_address(clients: tuple[Kube, Cluster]) -> None:
    kube, user = clients
    for name, labels in (("ours", {"argocd.argoproj.io/secret-type": "repository"}), ("other", {})):
        data = {"url": "https://git.example.org/apps.git", "password": CANARY, "empty": ""}
        packed = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "data": packed,
        }
        user.post("/api/v1/namespaces/default/secrets", body)
    meta = {"name": "argocd-cm", "namespace": "default"}
    user.post(
        "/api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "text\n"}},
    )
    scope: dict[str, Any] = {
        "namespace": "default",
        "repo": "x",
        "gate_expectations": {"projects": [{"name": "p", "spec": {}}]},
    }
    seen = base_services.delivery(kube, Scope(arguments=scope))
    assert [(one.name, one.url, one.keys) for one in seen.repositories] == [
        ("ours", "https://git.example.org/apps.git", ("password", "url"))
    ]
    assert seen.config == {"k": text_digest("text")}
    assert seen.projects == ()
    assert CANARY not in msgspec.json.encode(seen).decode()
    assert base64.b64encode(CANARY.encode()).decode() not in msgspec.json.encode(seen).decode()


def test_nothing_there_is_seen_as_nothing(clients: tuple[Kube, Cluster]) -> None:
    scope = Scope(arguments={"namespace": "argocd", "projects": ["p"], "crds": ["applications.argoproj.io"]})
    assert base_services.delivery(clients[0], scope) == DeliveryObservation()
    assert base_services.argo_cd(clients[0], scope) == ArgoCdObservation()


def test_components_are_what_is_part_of_argo_cd(clients: tuple[Kube, Cluster]) -> None:
    kube, user = clients
    for name, labels in (
        ("argocd-repo-server", {"app.kubernetes.io/part-of": "argocd", "app.kubernetes.io/component": "repo-server"}),
        ("something-else", {}),
    ):
        pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "argocd:v3.4.4"}]}}
        spec = {"selector": {"matchLabels": {"app": name}}, "template": pod}
        meta = {"name": name, "namespace": "default", "labels": labels}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
        user.post("/apis/apps/v1/namespaces/default/deployments", body)
    seen = base_services.argo_cd(kube, Scope(arguments={"namespace": "default"}))
    assert [(one.workload.name, one.component, one.workload.image) for one in seen.components] == [
        ("argocd-repo-server", "repo-server", "argocd:v3.4.4")
    ]
