"""Objects that stages write are accepted by an API server that serves the published CRDs and refuses unknown fields."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.clients.kube.client import Kube
from steps.runtime import check_manifests
from tests.unit.stages.test_operators import STAGES, VARIANTS, built
from workflows.rehearsal.apiserver import serve_in_thread

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[4] / "shared") / "crds"
PROJECTS = {
    "argo-cd-2026-08-22": ("application", "appproject"),
    "cert-manager-2026-08-22": ("certificate", "issuer"),
    "helm-controller-v0.17.7": ("",),
    "network-operator-2026-08-19": ("mellanox", "nv-ipam"),
    "network-attachment-definition-client-v1.7.7": ("",),
    "sriov-network-operator-2026-08-06": ("",),
}

if not DATA.is_dir():
    pytest.skip(f"published kinds are not at {DATA} (BRINGUP_TEST_DATA)", allow_module_level=True)


def published() -> Iterator[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for project, words in PROJECTS.items():
        for path in sorted((DATA / project / "crds").glob("*.yaml")):
            if any(word in path.name for word in words):
                yield yaml.load(path.read_text(), Loader=loader)


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    with serve_in_thread() as server:
        path = tmp_path_factory.mktemp("kube") / "kubeconfig"
        path.write_text(server.kubeconfig)
        client = Kube.from_file(path)
        for definition in published():
            client.apply(definition)
        for name in ("kube-system", "argocd"):
            client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield client


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stage", STAGES)
def test_objects_are_accepted(kube: Kube, stage: str, variant: str) -> None:
    made = [manifest for step in built(stage, variant).steps for manifest in step.task.arguments.get("objects", ())]
    for manifest in made:
        kube.apply(check_manifests.on_nodes(manifest, ("gpu001", "gpu002")))
    for manifest in made:
        if manifest["kind"] != "Namespace":
            kube.delete(kube.path(manifest))


def test_a_misspelt_field_would_be_refused(kube: Kube) -> None:
    """Or the test above proves nothing."""
    manifest = next(
        item
        for step in built("base_services").steps
        for item in step.task.arguments.get("objects", ())
        if item["kind"] == "HelmChart"
    )
    with pytest.raises(Exception, match="backofLimit"):
        kube.apply(manifest | {"spec": manifest["spec"] | {"backofLimit": 3}})
