"""Hosts on a fabric that all tests share; where this machine cannot have them, the reason by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "hosts"))

from hostlab import unmet
from mpilab import needs
from mpilab.cluster import MpiCluster, running

HOSTS = 8


@pytest.fixture(scope="session")
def cluster() -> Iterator[MpiCluster]:
    """Eight hosts, four on each of two leaf switches."""
    unmet.demand("mpi tier", needs.missing())
    with running(HOSTS) as cluster:
        yield cluster
