"""One real cluster for all tests; where this machine cannot make it, the reason by name."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kubelab import lab, needs
from kubelab.control_plane import ControlPlane
from kubelab.lab import Cluster


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
