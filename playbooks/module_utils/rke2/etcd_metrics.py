"""Metrics and health of a server's own etcd on 127.0.0.1:2381, where RKE2 always serves them."""

from __future__ import annotations

import re
import sys
import time
from urllib.error import HTTPError

from ansible.module_utils import direct_http

BASE = "http://127.0.0.1:2381"
SERIES = (
    "etcd_disk_wal_fsync_duration_seconds",
    "etcd_server_leader_changes_seen_total",
    "etcd_server_has_leader",
    "etcd_server_is_learner",
    "etcd_network_active_peers",
    "etcd_network_known_peers",
    "process_start_time_seconds",
)
"""Metrics that gate rke2/servers compares. All other lines of etcd's metrics, thousands of them, stay on the host."""
MOST = 4_000_000


def read_etcd() -> dict:
    """Return `metrics` (the lines of SERIES), `health` and `read` (epoch seconds); texts are empty if etcd does not answer."""
    metrics, health = fetch("/metrics"), fetch("/health")
    kept = [line for line in metrics.splitlines() if line.startswith(SERIES)]
    return {"metrics": "\n".join(kept), "health": health.strip()[:500], "read": round(time.time(), 3)}


def wal_writes(seen: dict) -> int:
    """Return how often etcd has written its write-ahead log; sys.maxsize if unknown, so that nobody waits for more writes."""
    match = re.search(r"^etcd_disk_wal_fsync_duration_seconds_count(?:\{[^}]*\})? (\S+)$", seen["metrics"], re.MULTILINE)
    return int(float(match.group(1))) if match else sys.maxsize


def fetch(path: str) -> str:
    """Return the body of etcd's response, also of an error (/health gives 503 with a reason); empty if etcd does not answer."""
    try:
        try:
            body = direct_http.get(BASE + path, most=MOST)
        except HTTPError as error:
            body = error.read(MOST)
        return body.decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
