"""Disturbed links: rounds of real MPI programs name the node, pair or path that is disturbed, and nothing on a healthy fabric."""

import contextlib

import pytest
from mpilab import fabric, mpi_rounds
from mpilab.cluster import FOLDER, MpiCluster
from mpilab.mpi_rounds import Measure, MpiRounds

from steps.localise.contract import FabricTest
from tests.bench.fabric_faults import named

LOSS = 0.3
DELAY_SECONDS = 0.2


def suspects(cluster: MpiCluster, measure: Measure) -> set[tuple[object, ...]]:
    """Return what a finished localisation names; every other node is cleared."""
    diagnosis, text = mpi_rounds.localise(cluster, measure)
    print(text)
    assert diagnosis.finished, diagnosis
    assert diagnosis.undecided == (), diagnosis
    bad = {node for suspect in diagnosis.suspects if suspect.kind == "node" for node in suspect.nodes}
    assert set(diagnosis.cleared) == {host.name for host in cluster.hosts} - bad
    return named(diagnosis)


@pytest.mark.parametrize("measure", ["bandwidth", "latency"])
def test_nothing_is_named_on_a_healthy_fabric(cluster: MpiCluster, measure: Measure) -> None:
    assert suspects(cluster, measure) == set()


def test_a_host_with_a_slow_link_is_named(cluster: MpiCluster) -> None:
    slow = cluster.hosts[5]
    with cluster.slow(slow):
        assert suspects(cluster, "bandwidth") == {("node", slow.name)}


def test_a_pair_that_loses_packets_is_named(cluster: MpiCluster) -> None:
    first, second = cluster.hosts[1], cluster.hosts[6]
    with cluster.lossy(first, second, LOSS):
        assert suspects(cluster, "bandwidth") == {("pair", first.name, second.name)}


def test_a_slow_trunk_is_named_as_the_path_between_its_leaves(cluster: MpiCluster) -> None:
    with cluster.slow_trunk():
        assert suspects(cluster, "bandwidth") == {("path", *fabric.LEAVES)}


def test_a_delayed_pair_is_named_by_its_latency(cluster: MpiCluster) -> None:
    first, second = cluster.hosts[2], cluster.hosts[3]
    with cluster.delayed(first, second, DELAY_SECONDS):
        assert suspects(cluster, "latency") == {("pair", first.name, second.name)}


def test_a_launch_that_fails_gives_no_result(cluster: MpiCluster) -> None:
    """The program is missing on one host: its test is unknown, neither passed nor failed."""
    first, second, third, bare = cluster.hosts[:4]
    bare.run("mv", f"{FOLDER}/osu_bibw", f"{FOLDER}/moved")
    try:
        runner = MpiRounds(cluster, "bandwidth")
        pairs = ((first.name, second.name), (third.name, bare.name))
        outcomes = runner.run([FabricTest(id=f"1.{number}", kind="pair", nodes=pair) for number, pair in enumerate(pairs)])
    finally:
        bare.run("mv", f"{FOLDER}/moved", f"{FOLDER}/osu_bibw")
    assert [outcome.result for outcome in outcomes] == ["pass", "unknown"], runner.problems
    assert "osu_bibw" in runner.problems[0]


def test_a_slow_host_and_a_lossy_pair_are_both_named(cluster: MpiCluster) -> None:
    slow, first, second = cluster.hosts[0], cluster.hosts[4], cluster.hosts[2]
    with contextlib.ExitStack() as faults:
        faults.enter_context(cluster.slow(slow))
        faults.enter_context(cluster.lossy(first, second, LOSS))
        assert suspects(cluster, "bandwidth") == {("node", slow.name), ("pair", second.name, first.name)}
