"""Faults around a run of the local engine: a second engine, a full disk, a bad folder, a foreign journal, clocks that jump."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from workflows.engines.local.errors import (
    EngineError,
    JournalForeignError,
    ManifestRefusedError,
    RunBusyError,
    RunDirectoryError,
    StorageError,
)
from workflows.engines.local.journal import RecordClock
from workflows.engines.local.journal_chain import ChainEnd
from workflows.engines.local.local_engine import LocalEngine
from workflows.engines.local.result import News, ProcessNews, read_status

Make = Callable[..., dict[str, Any]]
Fork = Callable[[Callable[[], int]], Any]


def one(manifest: Make, script: Make, text: str) -> dict[str, Any]:
    return manifest([{"name": "a", "template": "a"}], [script("a", text)])


def test_two_engines_on_one_run(tmp_path: Path, manifest: Make, script: Make) -> None:
    run_dir = tmp_path / "run"
    running = threading.Event()
    workflow = one(manifest, script, "while [ ! -e /bringup/store/go ]; do sleep 0.05; done")

    def observe(news: News) -> None:
        if isinstance(news, ProcessNews):
            running.set()

    results: list[str] = []
    first = threading.Thread(target=lambda: results.append(LocalEngine(run_dir, workflow, observer=observe).run().phase))
    first.start()
    assert running.wait(60)
    for second in (lambda: LocalEngine.resume(run_dir), lambda: LocalEngine(run_dir, workflow).run()):
        with pytest.raises(RunBusyError, match="another engine") as caught:
            second()
        assert caught.value.exit_code == 75
    assert read_status(run_dir).alive
    (run_dir / "store/go").touch()
    first.join(60)
    assert results == ["Succeeded"]


def test_a_directory_that_already_holds_a_run(tmp_path: Path, manifest: Make, script: Make) -> None:
    workflow = one(manifest, script, "exit 0")
    LocalEngine(tmp_path, workflow).run()
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        LocalEngine(tmp_path, workflow).run()


@pytest.mark.parametrize("act", ["run", "resume", "status"])
def test_a_directory_that_cannot_be_one(tmp_path: Path, manifest: Make, script: Make, act: str) -> None:
    blocked = tmp_path / "file" / "run"
    blocked.parent.write_text("not a folder")
    acts: dict[str, Callable[[], object]] = {
        "run": LocalEngine(blocked, one(manifest, script, "exit 0")).run,
        "resume": lambda: LocalEngine.resume(blocked),
        "status": lambda: read_status(blocked),
    }
    with pytest.raises(RunDirectoryError) as caught:
        acts[act]()
    assert caught.value.exit_code == 64


def test_disk_full_loses_nothing(tmp_path: Path, manifest: Make, script: Make, fork: Fork) -> None:
    """Files may not grow beyond a limit in the first process (EFBIG where a full disk says ENOSPC); without it, resume goes on."""
    names = [f"t{index}" for index in range(30)]
    tasks = [{"name": name, "template": "t", **({"depends": f"t{index - 1}"} if index else {})} for index, name in enumerate(names)]
    workflow = manifest(tasks, [script("t", "echo x >> /bringup/store/count")])

    def work() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, resource.RLIM_INFINITY))
        try:
            return LocalEngine(tmp_path / "run", workflow).run().exit_code
        except StorageError as err:
            return err.exit_code

    assert fork(work).wait() == 75
    before = {node.path: node.phase for node in read_status(tmp_path / "run").nodes}
    assert 1 < len(before) < len(names) + 1
    result = LocalEngine.resume(tmp_path / "run")
    assert result.phase == "Succeeded"
    assert len((tmp_path / "run/store/count").read_text().split()) in (len(names), len(names) + 1)


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


def damage_garbage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


def damage_other(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()


def damage_record(path: Path) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE records SET body = ? WHERE kind = 'event'", ('{"event": "unheard-of", "at": 0}',))
    connection.close()


def damage_version(path: Path) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE meta SET value = '0' WHERE key = 'machine'")
    connection.close()


@pytest.mark.parametrize("damage", [damage_cut, damage_garbage, damage_other, damage_record, damage_version])
def test_a_journal_that_is_not_ours(tmp_path: Path, manifest: Make, script: Make, damage: Callable[[Path], None]) -> None:
    LocalEngine(tmp_path, one(manifest, script, "exit 0")).run()
    damage(tmp_path / "journal.db")
    kept = (tmp_path / "journal.db").read_bytes()
    with pytest.raises(JournalForeignError) as caught:
        LocalEngine.resume(tmp_path)
    assert caught.value.exit_code == 64
    assert (tmp_path / "journal.db").read_bytes()[:16] == kept[:16]


def altered(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DELETE FROM records", "are lost"),
        ("DELETE FROM records WHERE seq = 2", "record 2 is lost"),
        ("DELETE FROM records WHERE seq = (SELECT max(seq) FROM records)", "are lost"),
        ("UPDATE records SET body = replace(body, '0', '1') WHERE seq = 3", "record 3 or one before it was altered"),
        ("UPDATE records SET body = CAST(x'FF' AS TEXT) WHERE seq = 2", "record 2 or one before it was altered"),
        ("UPDATE records SET wall = wall - 3600 WHERE seq = 1", "record 1 or one before it was altered"),
        ("UPDATE meta SET value = 'Succeeded' WHERE key = 'phase'", "its phase was altered"),
        (
            "UPDATE meta SET value = replace(value, 'exit 1', 'exit 0') WHERE key = 'settings'",
            "record 1 or one before it was altered",
        ),
    ],
)
def test_lost_and_altered_records_are_refused_and_nothing_runs_again(
    tmp_path: Path, manifest: Make, script: Make, statement: str, sentence: str
) -> None:
    LocalEngine(tmp_path, one(manifest, script, "exit 1")).run()
    altered(tmp_path / "journal.db", statement)
    for read in (LocalEngine.resume, read_status):
        with pytest.raises(JournalForeignError, match=sentence):
            read(tmp_path)


def test_a_journal_that_lost_its_end_together_with_its_head_is_refused(tmp_path: Path, manifest: Make, script: Make) -> None:
    LocalEngine(tmp_path, one(manifest, script, "exit 0")).run()
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as connection:
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        connection.execute("DELETE FROM records WHERE seq > 2")
        connection.execute("DELETE FROM meta WHERE key = 'phase'")
        del meta["phase"]
        link = connection.execute("SELECT link FROM records WHERE seq = 2").fetchone()[0]
        connection.execute("UPDATE meta SET value = ? WHERE key = 'head'", (ChainEnd(2, link).head(meta),))
        connection.commit()
    for read in (LocalEngine.resume, read_status):
        with pytest.raises(JournalForeignError, match="its engine had written record"):
            read(tmp_path)
    (tmp_path / "journal.head").unlink()
    os.mkfifo(tmp_path / "journal.head")  # opening it would never return
    for read in (LocalEngine.resume, read_status):
        with pytest.raises(JournalForeignError, match="cannot be read: is a FIFO"):
            read(tmp_path)
    path.unlink()
    with pytest.raises(RunDirectoryError, match="is gone"):
        LocalEngine(tmp_path, one(manifest, script, "exit 0")).run()


KILLED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = DELETE")
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE meta SET value = 'Failed' WHERE key = 'phase'")
connection.executemany("INSERT INTO nodes VALUES (?, ?)", [(f"n{number}", "x" * 2000) for number in range(100)])
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Writes more than it keeps in memory, and dies: what it wrote must be taken back."""


def test_what_a_killed_engine_had_half_written_is_taken_back_by_who_reads(tmp_path: Path, manifest: Make, script: Make) -> None:
    LocalEngine(tmp_path, one(manifest, script, "exit 0")).run()
    before = read_status(tmp_path)
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "journal.db")], check=False)
    assert (tmp_path / "journal.db-journal").exists()
    assert read_status(tmp_path) == before


def test_a_manifest_outside_of_the_grammar(tmp_path: Path, manifest: Make, script: Make) -> None:
    workflow = one(manifest, script, "exit 0")
    workflow["spec"]["templates"][1]["retryStrateg"] = {}
    with pytest.raises(ManifestRefusedError, match="did you mean 'retryStrategy'") as caught:
        LocalEngine(tmp_path / "run", workflow)
    assert caught.value.exit_code == 64
    assert not (tmp_path / "run").exists()


def test_clocks_that_jump() -> None:
    now = RecordClock.now(0.0)
    same_boot = RecordClock(0.0, now.wall + 86_400, now.boot, now.uptime - 5)
    assert 5 <= same_boot.since() < 65
    other_boot_future = RecordClock(0.0, now.wall + 86_400, "another boot", 0.0)
    assert other_boot_future.since() == 0.0
    other_boot_past = RecordClock(0.0, now.wall - 60, "another boot", 10**9)
    assert 60 <= other_boot_past.since() < 120


def test_every_error_has_an_exit_code_of_the_table() -> None:
    def below(kind: type[EngineError]) -> list[type[EngineError]]:
        return [kind, *(found for sub in kind.__subclasses__() for found in below(sub))]

    assert {kind.exit_code for kind in below(EngineError)} <= {1, 64, 65, 75}
