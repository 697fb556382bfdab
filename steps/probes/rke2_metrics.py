"""Reads what etcd says of itself: its metrics in Prometheus' text format, and its health; pure functions.

Only the few series that the gate compares are read. A percentile of a histogram is worked out as PromQL's `histogram_quantile`
does.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from steps.contract.stages.rke2 import Etcd

FSYNC = "etcd_disk_wal_fsync_duration_seconds"
CHANGES = "etcd_server_leader_changes_seen_total"
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+([^\s]+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One line of metrics."""

    name: str
    labels: dict[str, str]
    value: float


class Seen(Struct, frozen=True, kw_only=True):
    """What the module `rke2_status` read on a server: the texts of /metrics (these series alone) and /health, and when."""

    metrics: str = ""
    health: str = ""
    read: float = 0.0


class Health(Struct, frozen=True):
    """etcd's answer at /health; `health` is a text there."""

    health: str = ""
    reason: str = ""


def etcd(seen: Seen) -> Etcd | None:
    """The member as it tells of itself; None where it did not tell its leader changes, as no etcd does."""
    samples = tuple(read(seen.metrics))
    changes = _value(samples, CHANGES)
    if changes is None:
        return None
    health = _health(seen.health)
    learner = _value(samples, "etcd_server_is_learner")
    peers = {one.labels.get("Remote") for one in samples if one.name == "etcd_network_active_peers" and one.value > 0}
    known = {one.labels.get("Remote") for one in samples if one.name == "etcd_network_known_peers" and one.value > 0}
    found = buckets(samples, FSYNC)
    return Etcd(
        leader_changes=int(changes),
        healthy=health.health == "true",
        reason=health.reason,
        has_leader=_value(samples, "etcd_server_has_leader") == 1,
        learner=None if learner is None else learner != 0,
        members=1 + len(peers - {None}),
        known=len(known - {None}) or None,
        fsyncs=int(found[-1][1]) if found else 0,
        fsync_p99=quantile(0.99, found),
        started=_value(samples, "process_start_time_seconds") or 0.0,
        read=seen.read,
    )


def read(text: str) -> Iterator[Sample]:
    """The samples of metrics in Prometheus' text format; comments, other lines, and values that are no number are left out."""
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        if found is None:
            continue
        value = _number(found[3])
        if value is not None and math.isfinite(value):
            yield Sample(found[1], dict(_LABEL.findall(found[2] or "")), value)


def buckets(samples: Iterable[Sample], name: str) -> tuple[tuple[float, float], ...]:
    """A histogram's buckets: each upper bound in ascending order, with how many values were at most that."""
    found = ((_number(one.labels.get("le", "")), one.value) for one in samples if one.name == f"{name}_bucket")
    return tuple(sorted({bound: count for bound, count in found if bound is not None and bound == bound}.items()))


def quantile(share: float, rows: Sequence[tuple[float, float]]) -> float | None:
    """The value that `share` (0 to 1) of a histogram's values do not exceed, taking each bucket's values as evenly spread; above
    the last finite bound that bound, as histogram_quantile does. None without values."""
    if not rows or rows[-1][1] <= 0 or rows[-1][0] != float("inf"):
        return None
    rank = share * rows[-1][1]
    low = below = 0.0
    for bound, count in rows:
        if count >= rank and count > below:
            return low if bound == float("inf") else low + (bound - low) * max(rank - below, 0.0) / (count - below)
        low, below = min(bound, _last_finite(rows)), max(count, below)
    return low


def _last_finite(rows: Sequence[tuple[float, float]]) -> float:
    return rows[-2][0] if len(rows) > 1 else 0.0


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _value(samples: Iterable[Sample], name: str) -> float | None:
    return next((one.value for one in samples if one.name == name), None)


def _health(text: str) -> Health:
    try:
        return msgspec.json.decode(text.encode(), type=Health)
    except msgspec.MsgspecError:
        return Health()
