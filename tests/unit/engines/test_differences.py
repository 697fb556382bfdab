"""Runs compared by their evidence: what counts as a time or an id, and what does not."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.clients.store import Store
from steps.errors import BadTask
from workflows.engines.run_comparison import differences

RECORD = {
    "run": "one",
    "input_digest": "sha256:" + "1" * 64,
    "started": 1.0,
    "engine": "local",
    "verdict": {"status": "pass", "reason": "one took 3.2 s at 2026-11-21T10:00:00Z"},
    "observation": {"pods": [{"node": "a"}, {"node": "b"}], "uid": "0b9ac1f0-3a0c-4f0a-9d53-1df3bb8d7f4e", "now": 5.5},
}
KEY = "evidence/drill/judge/0000/01.json"


def keep(store: Store, run: str, record: dict[str, Any], key: str = KEY) -> None:
    if store.read(f"runs/{run}/run.json") is None:
        store.write(f"runs/{run}/run.json", msgspec.json.encode({"run": run, "cluster": "c", "plan": "sha256:x"}))
    store.write(f"runs/{run}/{key}", msgspec.json.encode(record))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    keep(made, "one", RECORD)
    return made


def test_times_ids_and_order_are_no_difference(store: Store) -> None:
    later = {
        **RECORD,
        "run": "other",
        "started": 99.5,
        "engine": "argo",
        "verdict": {"status": "pass", "reason": "other took 1 min 12 s at 2026-11-22T11:11:11.5Z"},
        "observation": {"pods": [{"node": "b"}, {"node": "a"}], "uid": "1b9ac1f0-3a0c-4f0a-9d53-1df3bb8d7f4e", "now": 9.5},
    }
    keep(store, "other", later)
    store.write("runs/other/logs/drill/judge/0000/01.log", b"not compared")
    assert differences(store, "one", "other") == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input_digest": "sha256:" + "2" * 64}, "input_digest"),
        ({"verdict": {"status": "fail", "reason": "x"}}, 'verdict.status: "pass" against "fail"'),
        ({"observation": {"pods": [{"node": "a"}], "uid": "u"}}, "observation.pods"),
    ],
)
def test_anything_else_is_one(store: Store, change: dict[str, Any], said: str) -> None:
    keep(store, "other", {**RECORD, **change})
    assert any(said in line for line in differences(store, "one", "other"))


def test_a_record_that_only_one_has(store: Store) -> None:
    record = {**RECORD, "verdict": {"status": "pass", "reason": "other took 4 s at 2026-11-21T10:00:00Z"}}
    keep(store, "other", record)
    keep(store, "other", record, KEY.replace("01.json", "02.json"))
    assert differences(store, "one", "other") == ("evidence/drill/judge/0000/02.json: only in other",)
    with pytest.raises(BadTask, match="no run third"):
        differences(store, "one", "third")
