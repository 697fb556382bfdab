"""`bringup stack update`: what a newer lock would change, which builds that takes and how long, before anything is built."""

import json
from pathlib import Path
from typing import Any

import pytest

from steps.softwarestack.contract.stack_input import prefix_digest
from tests.unit.cli.conftest import Machine
from tests.unit.softwarestack.test_easybuild_lock import DIGEST, FILES, SPEC, easyconfig

LOCK = "stack.lock.json"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "stack.yaml").write_text(SPEC.replace("/srv/buildcache", str(tmp_path / "cache")))
    (tmp_path / "easyconfigs").mkdir()
    for name, text in FILES.items():
        (tmp_path / "easyconfigs" / name).write_text(text)
    return Machine(tmp_path)


@pytest.fixture
def locked(machine: Machine) -> Machine:
    """A machine with a lock, of which the cache has libbsd, and easyconfigs that have changed since."""
    assert machine.call("stack", "lock").code == 0
    with (machine.folder / "easyconfigs/zlib-1.2.13.eb").open("a") as file:
        file.write("# a comment\n")
    newer = easyconfig("app", "1.1", "gompi 2022.12", sources=["app.tar.gz"], checksums=[DIGEST])
    (machine.folder / "easyconfigs/app-1.1-gompi-2022.12.eb").write_text(newer)
    spec = machine.folder / "stack.yaml"
    spec.write_text(spec.read_text().replace("app-1.0-gompi", "app-1.1-gompi"))
    return machine


def data(machine: Machine, *words: str) -> Any:
    """Return what `stack update` prints as JSON."""
    done = machine.call("stack", "update", *words, "-o", "json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_an_update_tells_each_change_with_its_reason_and_its_build(locked: Machine) -> None:
    before = (locked.folder / LOCK).read_bytes()
    update = data(locked)
    assert (update["written"], update["changed"], update["first"]) == (False, True, False)
    rows = {row["package"]: row for row in update["changes"]}
    assert {name: (row["kind"], row["before"], row["after"], row["why"]) for name, row in rows.items()} == {
        "MPI/GCC/12.2.0/OpenMPI/4.1.4/app/1.0": ("removed", "1.0", "", "a root no longer"),
        "MPI/GCC/12.2.0/OpenMPI/4.1.4/app/1.1": ("added", "", "1.1", "a root that was none"),
        "Core/zlib/1.2.13": ("changed", "1.2.13", "1.2.13", "its easyconfig changed"),
        "Core/libbsd/0.11.7": ("changed", "0.11.7", "0.11.7", "something that it needs changed"),
    }
    assert rows["Core/zlib/1.2.13"]["result"] == rows["Core/libbsd/0.11.7"]["result"] == "build"
    assert rows["Core/zlib/1.2.13"]["seconds"] > 0
    assert rows["MPI/GCC/12.2.0/OpenMPI/4.1.4/app/1.0"]["result"] == "-"
    assert [makespan["slots"] for makespan in update["plan"]["makespans"]] == [4]
    assert (locked.folder / LOCK).read_bytes() == before


def test_what_the_cache_has_is_not_built(locked: Machine) -> None:
    rows = data(locked)["changes"]
    libbsd = next(row["hash"] for row in rows if row["package"] == "Core/libbsd/0.11.7")
    entry = locked.folder / "cache" / prefix_digest("/srv/stacks") / f"{libbsd}.json"
    entry.parent.mkdir(parents=True)
    entry.write_text("{}")
    update = data(locked, "--slots", "1", "--slots", "2")
    results = {row["package"]: row["result"] for row in update["changes"]}
    assert results["Core/libbsd/0.11.7"] == "cached"
    assert results["Core/zlib/1.2.13"] == "not needed", "only the build of libbsd needs it"
    assert [makespan["slots"] for makespan in update["plan"]["makespans"]] == [1, 2]


def test_a_table_has_changes_and_then_builds_and_their_time(locked: Machine) -> None:
    (locked.folder / "times.json").write_text(json.dumps({"zlib": 100, "libbsd": 50}))
    done = locked.call("stack", "update", "--durations", "times.json", COLUMNS="200")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].lower().split() == ["package", "now", "then", "why", "result", "time"]
    row = next(line for line in lines if line.startswith("Core/zlib/1.2.13"))
    assert row.split()[-3:] == ["build", "100", "s"]
    assert f"{locked.folder / LOCK}: 1 added, 1 removed, 2 changed" in lines
    counts = next(line for line in lines if " to build" in line)
    assert counts.startswith("6 packages to build, 3 of them not changed and not in the cache")
    assert any(line.startswith("about ") and line.endswith(" with 4 builds at a time") for line in lines)


def test_write_replaces_the_lock_by_the_one_that_was_shown(locked: Machine) -> None:
    shown = data(locked)
    written = data(locked, "--write")
    assert written["written"] is True
    assert written["changes"] == shown["changes"]
    again = locked.call("stack", "update", "--write")
    assert (again.code, again.out) == (0, f"{locked.folder / LOCK}: nothing newer\n")
    assert data(locked, "--write")["written"] is False
    assert locked.call("stack", "lock").out.endswith("unchanged, 6 packages\n")


def test_a_stack_without_a_lock_is_counted(machine: Machine) -> None:
    done = machine.call("stack", "update")
    assert done.code == 0
    assert done.out.startswith(f"{machine.folder / LOCK} (no lock yet): 6 added, 0 removed, 0 changed\n")
    assert not (machine.folder / LOCK).exists()


def test_what_cannot_be_locked_is_a_sentence(machine: Machine) -> None:
    (machine.folder / "easyconfigs/zlib-1.2.13.eb").write_text("name = (")
    done = machine.call("stack", "update", "--write")
    assert done.code == 64
    assert "EasyBuild cannot resolve the easyconfigs" in done.err
    assert not (machine.folder / LOCK).exists()
