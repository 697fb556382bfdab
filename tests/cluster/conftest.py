"""One real cluster for all tests; where this machine cannot make it, the reason by name."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from actors import sources
from actors.argo_cd import ArgoCd
from actors.sources import Sources
from kubelab import box, lab, needs
from kubelab.control_plane import ControlPlane
from kubelab.lab import Cluster

FIRST = (
    "test_clean_machine.py",
    "test_same_verdicts.py",
    "test_gitops.py",
    "test_argo_engine.py",
    "test_step_pods.py",
    "test_image_pods.py",
    "test_errands.py",
    "test_rights.py",
    "test_simulate.py",
)
"""Test files to run first: the one for a machine without a cluster, then the longest, to keep two parallel workers busy."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the order of `FIRST`; the others behind."""
    order = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(item.path.name, len(FIRST)))


@pytest.fixture(scope="session")
def able() -> None:
    """Skip the tier where it cannot run; where it must run, that is a failure."""
    reasons = needs.missing()
    if reasons and os.environ.get("CI") == "true":
        pytest.fail("cluster tier: " + "; ".join(reasons), pytrace=False)
    if reasons:
        pytest.skip("cluster tier: " + "; ".join(reasons))


@pytest.fixture(scope="session")
def cluster(able: None) -> Iterator[Cluster]:
    """A control plane, a real node and helm-controller; programs that are not cached are built first."""
    with lab.alone():
        lab.down()
        yield lab.up()
        lab.down()


@pytest.fixture(scope="session")
def kubeconfig(cluster: Cluster) -> Path:
    """An admin's kubeconfig of the cluster."""
    return cluster.plane.kubeconfig


@pytest.fixture(scope="module")
def bare(cluster: Cluster) -> Iterator[ControlPlane]:
    """A second control plane of etcd and API server only, for who plays all controllers."""
    plane = cluster.bare()
    plane.start()
    yield plane
    plane.remove()


@pytest.fixture(scope="session")
def argo_cd(cluster: Cluster) -> Iterator[ArgoCd]:
    """The real Argo CD in the cluster, for who asks for it; a cold cache costs its build."""
    made = ArgoCd(cluster.plane)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def origins(argo_cd: ArgoCd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sources]:
    """Git repositories and a Helm repository with the charts of `charts/`, which Argo CD and the test reach."""
    with sources.serve(tmp_path_factory.mktemp("sources")) as made:
        argo_cd.trust(box.OUTSIDE, made.certificate)
        for chart in sorted(lab.CHARTS.glob("*/Chart.yaml")):
            made.publish(chart.parent)
        yield made
