"""Reading etcd's metrics: percentiles of its histogram, and no value that the text does not state."""

import bisect
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.stages.rke2 import gate_etcd as gate
from steps.stages.rke2 import probe_metrics
from steps.stages.rke2.contract import EtcdLimits

BOUNDS = tuple(0.001 * 2**power for power in range(14))
"""etcd's own buckets: 1 ms and its doubles."""
TEXT = """# HELP etcd_disk_wal_fsync_duration_seconds The latency distributions of fsync called by WAL.
# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 900
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.002"} 985
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.004"} 995
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.008"} 1000
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 1000
etcd_disk_wal_fsync_duration_seconds_sum 0.7
etcd_disk_wal_fsync_duration_seconds_count 1000
etcd_network_active_peers{Local="8e9e05c52164694d",Remote="91bc3c398fb3c146"} 1
etcd_network_active_peers{Local="8e9e05c52164694d",Remote="fd422379fda50e48"} 1
etcd_network_active_peers{Local="8e9e05c52164694d",Remote="0000000000000bad"} 0
etcd_server_has_leader 1
etcd_server_is_learner 0
etcd_server_leader_changes_seen_total 2
process_start_time_seconds 1.7632e+09
etcd_network_known_peers{Local="8e9e05c52164694d",Remote="8e9e05c52164694d"} 1
etcd_network_known_peers{Local="8e9e05c52164694d",Remote="91bc3c398fb3c146"} 1
etcd_network_known_peers{Local="8e9e05c52164694d",Remote="fd422379fda50e48"} 1
etcd_network_known_peers{Local="8e9e05c52164694d",Remote="0000000000000bad"} 0
"""
HEALTH = '{"health":"true","reason":""}'


def histogram(values: list[float]) -> tuple[tuple[float, float], ...]:
    ordered = sorted(values)
    finite = [(bound, float(bisect.bisect_right(ordered, bound))) for bound in BOUNDS]
    return (*finite, (math.inf, float(len(values))))


def seen(metrics: str = TEXT, health: str = HEALTH) -> probe_metrics.ServerTexts:
    return probe_metrics.ServerTexts(metrics=metrics, health=health, read=1.7633e9)


def test_a_member_as_it_tells_of_itself() -> None:
    found = probe_metrics.etcd(seen())
    assert found is not None
    assert (found.healthy, found.has_leader, found.learner, found.members, found.leader_changes) == (True, True, False, 3, 2)
    assert found.known == 3, "itself and two others; not the one that was removed"
    assert found.fsyncs == 1000
    assert found.fsync_p99 == pytest.approx(0.003), "halfway between the 985th and the 995th, in the bucket of 2 to 4 ms"
    assert (found.started, found.read) == (1.7632e9, 1.7633e9)


@given(st.lists(st.floats(1e-5, 8.0), min_size=1, max_size=300), st.floats(0.01, 1.0))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    true = sorted(values)[math.ceil(share * len(values)) - 1]
    place = bisect.bisect_left(BOUNDS, true)
    low, high = (BOUNDS[place - 1] if place else 0.0), BOUNDS[place]
    found = probe_metrics.quantile(share, histogram(values))
    assert found is not None
    assert low - 1e-9 <= found <= high + 1e-9


@given(st.lists(st.floats(1e-5, 20.0), min_size=1, max_size=100), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(2, 1000))
def test_percentiles_grow_with_their_share_and_not_with_the_number_of_values(
    values: list[float], one: float, other: float, times: int
) -> None:
    rows = histogram(values)
    low, high = (probe_metrics.quantile(share, rows) for share in sorted((one, other)))
    assert low is not None
    assert high is not None
    assert low <= high + 1e-12
    more = tuple((bound, count * times) for bound, count in rows)
    assert probe_metrics.quantile(one, more) == pytest.approx(probe_metrics.quantile(one, rows))


def test_what_is_beyond_the_last_bucket_is_at_least_its_bound() -> None:
    assert probe_metrics.quantile(0.99, histogram([100.0] * 10)) == BOUNDS[-1]


@pytest.mark.parametrize("rows", [(), ((0.001, 5.0),), ((math.inf, 0.0),)])
def test_without_values_or_without_their_number_there_is_no_percentile(rows: tuple[tuple[float, float], ...]) -> None:
    assert probe_metrics.quantile(0.99, rows) is None


LINES = TEXT.splitlines()


@given(
    st.lists(st.sampled_from([*LINES, "etcd_server_leader_changes_seen_total NaN", 'a{le="x"} 1', "{}", "\x00 1"]), max_size=20),
    st.text(),
)
def test_no_text_is_read_as_more_than_it_says(lines: list[str], health: str) -> None:
    """Readers never raise; and whatever is missing, a member that did not say all of it is not found well."""
    found = probe_metrics.etcd(seen("\n".join(lines), health))
    findings = list(gate.findings("sv1", found, EtcdLimits(), 3, 3))
    assert findings or (set(LINES[2:7]) | {LINES[9], LINES[10], LINES[12], LINES[13], LINES[14], LINES[15]}) <= {*lines, LINES[11]}
    if health != HEALTH:
        assert findings, "an answer of /health that does not say true"


def test_each_line_is_needed() -> None:
    limits = EtcdLimits()
    assert not list(gate.findings("sv1", probe_metrics.etcd(seen()), limits, 3, 3))
    needed = ("has_leader", "is_learner", "leader_changes", "process_start", "91bc", "known_peers", "+Inf")
    for word in needed:
        less = "\n".join(line for line in LINES if word not in line)
        assert list(gate.findings("sv1", probe_metrics.etcd(seen(less)), limits, 3, 3)), word
    assert list(gate.findings("sv1", probe_metrics.etcd(seen(health="")), limits, 3, 3))
