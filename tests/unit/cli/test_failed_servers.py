"""Agents are not played where the servers did not pass: there is nothing to join, and waiting would tell no more."""

from pathlib import Path
from typing import Any


def test_agents_wait_for_no_server_that_failed(machine: Any, small: str, tmp_path: Path) -> None:
    spec = tmp_path / "small.yaml"
    spec.write_text(small)

    done = machine.call("rehearse", spec, "--fault", "etcd_disk_slow")

    assert done.code == 65
    assert "rke2: agents skipped: servers did not pass" in done.out
    assert "rke2: fail: sv1 must pass; sv1: the 99th percentile of etcd's" in done.out
