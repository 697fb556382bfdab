"""A Slurm cluster that all tests share; where this machine cannot have it, the reason by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "hosts"))

from hostlab import unmet
from slurmlab import needs
from slurmlab.cluster import SlurmCluster, running

NODES = 4


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[SlurmCluster]:
    """A controller with accounting, and four nodes on two leaf switches."""
    unmet.demand("slurm tier", needs.missing())
    with running(NODES) as cluster:
        yield cluster


@pytest.fixture
def cluster(session_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster with all nodes idle before and after the test."""
    session_cluster.wait_idle()
    yield session_cluster
    session_cluster.wait_idle()


@pytest.fixture
def faulty(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster for a test that makes faults; they are all taken back afterwards."""
    try:
        yield cluster
    finally:
        cluster.heal()
