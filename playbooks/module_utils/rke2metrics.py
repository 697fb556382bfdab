"""Reads what a server's own etcd says of itself on 127.0.0.1:2381, where RKE2 has it serve metrics and health always."""

from __future__ import annotations

import re
import sys
import time
from urllib.error import HTTPError

from ansible.module_utils import direct

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
"""The series that the gate rke2/servers compares; the others, thousands of lines, stay on the host."""
MOST = 4_000_000


def etcd() -> dict:
    """The texts of /metrics (cut down to SERIES) and /health, and when they were read; empty texts where nobody answers."""
    metrics, health = answer("/metrics"), answer("/health")
    kept = [line for line in metrics.splitlines() if line.startswith(SERIES)]
    return {"metrics": "\n".join(kept), "health": health.strip()[:500], "read": round(time.time(), 3)}


def writes(seen: dict) -> int:
    """How often etcd has written its log, as the texts say; more than anybody asks for where they do not."""
    found = re.search(r"^etcd_disk_wal_fsync_duration_seconds_count(?:\{[^}]*\})? (\S+)$", seen["metrics"], re.MULTILINE)
    return int(float(found.group(1))) if found else sys.maxsize


def answer(path: str) -> str:
    """The body of an answer, also of one with an error (/health says 503 and why where etcd is not well); empty without one."""
    try:
        try:
            found = direct.get(BASE + path, most=MOST)
        except HTTPError as error:
            found = error.read(MOST)
        return found.decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
