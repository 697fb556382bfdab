"""Hosts are asked for their keys side by side, and one that holds up ssh-keyscan is nobody else's business."""

from pathlib import Path

import pytest

from steps.contract.play import PlayHost
from workflows.host_keys import scan
from workflows.host_keys.model import Key

KEYSCAN = """#!/bin/sh
while read -r host; do
  case $host in
    talks*) printf '%s ssh-ed25519 AAAAhalf' "$host"; exec sleep 600 ;;
    *) echo "$host ssh-ed25519 AAAA$host" ;;
  esac
done
"""


def test_a_service_that_talks_without_end_costs_no_other_host_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh-keyscan").write_text(KEYSCAN)
    (tmp_path / "ssh-keyscan").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    names = ["before", "talks", "behind1", "behind2"]

    found = scan.direct([PlayHost(name=name, address=name) for name in names], longest=1)

    answers = {name: (Key(kind="ssh-ed25519", blob=f"AAAA{name}"),) for name in names} | {"talks": ()}
    assert found == answers, "also no half key"


def test_a_large_fleet_is_asked_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh-keyscan").write_text(KEYSCAN)
    (tmp_path / "ssh-keyscan").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    names = [f"n{number}" for number in range(200)]

    found = scan.direct(PlayHost(name=name, address=name) for name in names)

    assert [key.blob for keys in found.values() for key in keys] == [f"AAAA{name}" for name in names]
