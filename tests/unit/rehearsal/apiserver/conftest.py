"""The servers that the tests aim at.

Tests that take `cluster` say what any Kubernetes API server does; with `BRINGUP_TEST_KUBECONFIG` they also run against that one.
Tests that take `emulated` are about what only the emulated server has.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.rehearsal.apiserver.cluster_client import Cluster, definition, of_kubeconfig, until
from workflows.rehearsal.apiserver import RunningServer, serve_in_thread

REAL = os.environ.get("BRINGUP_TEST_KUBECONFIG", "")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve_in_thread() as running:
        yield running


@pytest.fixture(scope="module", params=["emulated", *(["real"] if REAL else [])])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "real":
        found = of_kubeconfig(Path(REAL).read_text(), real=True)
    else:
        found = of_kubeconfig(request.getfixturevalue("server").kubeconfig, real=False)
    yield found
    found.close()


@pytest.fixture
def emulated() -> Iterator[Cluster]:
    """A server of the test's own."""
    with serve_in_thread() as running:
        found = of_kubeconfig(running.kubeconfig, real=False)
        yield found
        found.close()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    assert cluster.post("/api/v1/namespaces", {"metadata": {"name": name}}).status == 201
    if cluster.real:
        until(lambda: cluster.get(f"/api/v1/namespaces/{name}/serviceaccounts/default").status == 200)
    yield name
    cluster.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def define(cluster: Cluster, namespace: str) -> Iterator[Callable[..., str]]:
    """Makes a CRD with this schema of `spec`; gives the path of its objects."""
    made = []

    def make(spec: dict[str, Any], **version: Any) -> str:
        group = f"t{uuid.uuid4().hex[:8]}.example.com"
        schema = {
            "type": "object",
            "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
        answer = cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(group, schema, **version))
        assert answer.status == 201, answer.body
        made.append(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}")
        path = f"/apis/{group}/v1/namespaces/{namespace}/things"
        until(lambda: cluster.get(path).status == 200)
        return path

    yield make
    for path in made:
        cluster.delete(path)
