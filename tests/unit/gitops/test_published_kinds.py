"""Every object of the tree is accepted by an API server that serves Argo CD's published kinds, with unknown fields refused."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from steps.clients.kube.client import Kube
from tests.unit.gitops.test_tree import VARIANTS, cluster, documents, made
from workflows.rehearsal.apiserver import serve_in_thread

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[4] / "shared") / "crds" / "argo-cd-2026-08-22" / "crds"
KINDS = {"AppProject", "Application", "ApplicationSet"}

if not DATA.is_dir():
    pytest.skip(f"published kinds are not at {DATA} (BRINGUP_TEST_DATA)", allow_module_level=True)


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    with serve_in_thread() as server:
        path = tmp_path_factory.mktemp("kube") / "kubeconfig"
        path.write_text(server.kubeconfig)
        client = Kube.from_file(path)
        for file in sorted(DATA.glob("*.yaml")):
            client.apply(yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        for name in ("argocd", "gitops"):
            client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield client


@pytest.mark.parametrize("variant", VARIANTS)
def test_objects_are_accepted(kube: Kube, variant: str) -> None:
    files = made(cluster(**VARIANTS[variant]))
    found = [one for path, text in files.items() if path.endswith(".yaml") for one in documents(text) if one.get("kind") in KINDS]
    assert {one["kind"] for one in found} == KINDS
    for one in found:
        kube.apply(one)


def test_a_misspelt_field_would_be_refused(kube: Kube) -> None:
    """Or the test above proves nothing."""
    files = made(cluster())
    (root,) = documents(files["apps/environments/h200-16/root.yaml"])
    root["spec"]["syncPolice"] = root["spec"].pop("syncPolicy")
    with pytest.raises(Exception, match="syncPolice"):
        kube.apply(root)
