"""Parses etcd's metrics (Prometheus text format) and its health answer; pure functions.

Only the series that the gate compares are read. Percentiles are computed as PromQL's `histogram_quantile` does.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON
from steps.stages.rke2.contract import Etcd

FSYNC = "etcd_disk_wal_fsync_duration_seconds"
CHANGES = "etcd_server_leader_changes_seen_total"
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+([^\s]+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One line of Prometheus metrics: name, labels and value."""

    name: str
    labels: dict[str, str]
    value: float


class ServerTexts(Struct, frozen=True, kw_only=True):
    """Texts that the Ansible module `rke2_status` read on a server: /metrics (needed series only), /health, time of reading."""

    metrics: str = ""
    health: str = ""
    read: float = 0.0


class _Health(Struct, frozen=True):
    """Answer of etcd at /health; `health` is the text `true` or `false`."""

    health: str = ""
    reason: str = ""


def etcd(seen: ServerTexts) -> Etcd | None:
    """Return the etcd member; None if its metrics lack the leader changes, which every etcd reports."""
    samples = tuple(read(seen.metrics))
    changes = _value(samples, CHANGES)
    if changes is None:
        return None
    health = _health(seen.health)
    learner = _value(samples, "etcd_server_is_learner")
    peers = {sample.labels.get("Remote") for sample in samples if sample.name == "etcd_network_active_peers" and sample.value > 0}
    # value 0 marks a peer that was removed
    known = {sample.labels.get("Remote") for sample in samples if sample.name == "etcd_network_known_peers" and sample.value > 0}
    fsyncs = buckets(samples, FSYNC)
    return Etcd(
        leader_changes=int(changes),
        healthy=health.health == "true",
        reason=health.reason,
        has_leader=_value(samples, "etcd_server_has_leader") == 1,
        learner=None if learner is None else learner != 0,
        members=1 + len(peers - {None}),
        known=len(known - {None}) or None,
        fsyncs=int(fsyncs[-1][1]) if fsyncs else 0,
        fsync_p99=quantile(0.99, fsyncs),
        started=_value(samples, "process_start_time_seconds") or 0.0,
        read=seen.read,
    )


def read(text: str) -> Iterator[Sample]:
    """Yield the samples in Prometheus' text format. Comments, other lines and values that are not finite numbers are skipped."""
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        if match is None:
            continue
        value = _number(match[3])
        if value is not None and math.isfinite(value):
            yield Sample(match[1], dict(_LABEL.findall(match[2] or "")), value)


def buckets(samples: Iterable[Sample], name: str) -> tuple[tuple[float, float], ...]:
    """Return a histogram's buckets in ascending order, as pairs of upper bound and number of values up to that bound."""
    bounds = ((_number(sample.labels.get("le", "")), sample.value) for sample in samples if sample.name == f"{name}_bucket")
    return tuple(sorted({bound: count for bound, count in bounds if bound is not None and bound == bound}.items()))


def quantile(share: float, rows: Sequence[tuple[float, float]]) -> float | None:
    """Return the value that the given share (0 to 1) of a histogram's values do not exceed; None without values.

    Values are taken as evenly spread within their bucket. Above the last finite bound, that bound is returned, as
    histogram_quantile does.
    """
    # without the bucket `+Inf` the number of all values is unknown
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
    return next((sample.value for sample in samples if sample.name == name), None)


def _health(text: str) -> _Health:
    try:
        return msgspec.json.decode(text.encode(), type=_Health)
    except UNREADABLE_JSON:
        return _Health()
