"""Real tables of the programs on a healthy fabric: the reader of OSU's output has every row with its check of the data."""

import pytest
from mpilab.cluster import MpiCluster

from steps.readers import osu_table
from steps.readers.osu_table import OsuTable


def table(cluster: MpiCluster, names: list[str], program: str, *options: str) -> OsuTable:
    """Return the only table of a launch."""
    launch = cluster.launch(names, program, *options)
    assert not launch.problem, launch
    (read,) = osu_table.read(launch.text)
    assert read.is_whole
    assert {row.validation for row in read.rows} == {"Pass"}, launch.text
    return read


@pytest.mark.parametrize(
    ("program", "ranks", "title", "unit"),
    [
        ("osu_latency", 2, "MPI Latency Test", "us"),
        ("osu_bw", 2, "MPI Bandwidth Test", "MB/s"),
        ("osu_allreduce", 8, "MPI Allreduce Latency Test", "us"),
        ("osu_alltoall", 8, "MPI All-to-All Personalized Exchange Latency Test", "us"),
    ],
)
def test_tables_are_read_whole(cluster: MpiCluster, program: str, ranks: int, title: str, unit: str) -> None:
    names = [host.name for host in cluster.hosts]
    read = table(cluster, names[-ranks:], program, "-m", "4:16384", "-i", "4")
    assert (read.test, read.unit) == (title, unit)
    assert [row.size for row in read.rows] == [4 << place for place in range(13)]
    assert all(row.value > 0 for row in read.rows)
