"""Hosts are asked for their keys side by side, and one that holds up ssh-keyscan is nobody else's business."""

import os
import shutil
from pathlib import Path

import pytest

from steps.contract.host_play import PlayHost
from workflows.host_keys import enrolment, key_scan
from workflows.host_keys.model import Key
from workflows.spec import load

BEHIND = """apiVersion: bringup/v1
kind: Cluster
name: x
owner: tests@example.org
revision: "1"
hosts: {servers: {role: server, ranges: s1, addresses: {start: 192.0.2.1}}}
ssh: {key: {file: ./id}, jump_host: "ops@127.0.0.1:1"}
"""
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

    found = key_scan.scan_directly([PlayHost(name=name, address=name) for name in names], longest=3)

    answers = {name: (Key(kind="ssh-ed25519", blob=f"AAAA{name}"),) for name in names} | {"talks": ()}
    assert found == answers, "also no half key"


def test_a_large_fleet_is_asked_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh-keyscan").write_text(KEYSCAN)
    (tmp_path / "ssh-keyscan").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    names = [f"n{number}" for number in range(200)]

    found = key_scan.scan_directly(PlayHost(name=name, address=name) for name in names)

    assert [key.blob for keys in found.values() for key in keys] == [f"AAAA{name}" for name in names]


def test_a_key_in_a_folder_with_blanks_and_quotes_makes_no_configuration_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = shutil.which("ssh")
    (tmp_path / "ssh").write_text(f'#!/bin/sh\n{ssh} -G "$@" >> {tmp_path}/said 2>&1\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    place = tmp_path / 'My "new" cluster'
    place.mkdir()
    (place / "id").write_text("no key\n")
    (place / "cluster.yaml").write_text(BEHIND)

    rows = enrolment.scan_host_keys(enrolment.scan_targets(load(place / "cluster.yaml"), place, tmp_path / "known"))

    assert {row.host for row in rows} == {"jump host", "s1"}
    said = (tmp_path / "said").read_text()
    assert "identityfile" in said
    assert "extra arguments" not in said
    assert "bad configuration" not in said
