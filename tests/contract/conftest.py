"""The servers under contract: the emulated one, and the real one that `BRINGUP_TEST_KUBECONFIG` names, with what tests need there.

A real one needs a controller-manager, so that pods may be created, and an API server that started after some writes, so that
revision 1 is forgotten.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config, dynamic
from kubernetes.client.rest import ApiException

from tests.contract.objects import NODES, eventually, node
from workflows.rehearsal.apiserver import serve_in_thread

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[3] / "shared")
HELM_CHART = DATA / "crds" / "helm-controller-v0.17.7" / "crds" / "helm.cattle.io_helmcharts.yaml"
REAL = os.environ.get("BRINGUP_TEST_KUBECONFIG", "")


def ignoring(status: int, call: Any, *arguments: Any) -> None:
    try:
        call(*arguments)
    except ApiException as error:
        if error.status != status:
            raise


@pytest.fixture(scope="module", params=["emulated", *(["real"] if REAL else [])])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def api(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.ApiClient]:
    if target == "real":
        yield seeded(config.new_client_from_config(REAL))
        return
    file = tmp_path_factory.mktemp("kube") / "config"
    with serve_in_thread() as server:
        file.write_text(server.kubeconfig)
        api_client = config.new_client_from_config(str(file))
        yield seeded(api_client)
        api_client.close()


def seeded(api_client: client.ApiClient) -> client.ApiClient:
    for number in range(NODES):
        ignoring(409, client.CoreV1Api(api_client).create_node, node(number))
    definition = yaml.safe_load(HELM_CHART.read_text())
    ignoring(409, client.ApiextensionsV1Api(api_client).create_custom_resource_definition, definition)
    eventually(lambda: client.CustomObjectsApi(api_client).list_cluster_custom_object("helm.cattle.io", "v1", "helmcharts"))
    return api_client


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


@pytest.fixture
def charts(api: client.ApiClient, tmp_path: Path) -> Any:
    found = dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery"))
    return found.resources.get(api_version="helm.cattle.io/v1", kind="HelmChart")


@pytest.fixture
def namespace(target: str, core: client.CoreV1Api) -> Iterator[str]:
    """A namespace of this test's own; on a real server its service account is waited for."""
    name = f"probe-{uuid.uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": name}})
    if target == "real":
        eventually(lambda: core.read_namespaced_service_account("default", name))
    yield name
    core.delete_namespace(name, _preload_content=False)
