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
    ("one", "other"),
    [
        ({"pod": "nccl-worker-x7k2m"}, {"pod": "nccl-worker-4bqzz"}),
        ({"pod": "volcano-scheduler-5d78c9869d-x7k2m"}, {"pod": "volcano-scheduler-6f4b7c5d8-bbq5z"}),
        ({"text": "Pod gang-check-x7k2m: not ready"}, {"text": "Pod gang-check-w9xcv: not ready"}),
        ({"text": "one-rke2-judge-1234567890 was evicted"}, {"text": "other-rke2-judge-987654321 was evicted"}),
        ({"pods": {"a-x7k2m": "up", "a-4bqzz": "down"}}, {"pods": {"a-bbq5z": "down", "a-w9xcv": "up"}}),
        ({"nodes": ["gpu002", "gpu001"]}, {"nodes": ["gpu001", "gpu002"]}),
        ({"lists": [["b", "a"], ["c"]]}, {"lists": [["c"], ["a", "b"]]}),
        ({"created": 1763719200.25}, {"created": 1763805600}),
        ({"text": "waited 2 min"}, {"text": "waited 3 min 04 s"}),
    ],
)
def test_pod_names_times_and_the_order_of_lists_are_no_difference(store: Store, one: object, other: object) -> None:
    keep(store, "one", {"observation": one}, KEY.replace("01", "03"))
    keep(store, "other", {**RECORD, "verdict": {"status": "pass", "reason": "other took 1 s at 2026-11-21T10:00:00Z"}})
    keep(store, "other", {"observation": other}, KEY.replace("01", "03"))
    assert differences(store, "one", "other") == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"node": "gpu-24567"}, {"node": "gpu-24568"}),
        ({"node": "rack7-gpu001"}, {"node": "rack7-gpu002"}),
        ({"pod": "nccl-worker-x7k2m"}, {"pod": "nccl-launcher-x7k2m"}),
        ({"pods": {"a-x7k2m": "up", "a-4bqzz": "down"}}, {"pods": {"a-bbq5z": "down"}}),
        ({"nodes": ["gpu001", "gpu002"]}, {"nodes": ["gpu001"]}),
        ({"bytes": 2147483648}, {"bytes": 2147483649}),
    ],
)
def test_names_of_nodes_and_figures_are_compared(store: Store, one: object, other: object) -> None:
    keep(store, "one", {"observation": one}, KEY.replace("01", "03"))
    keep(store, "other", {"observation": other}, KEY.replace("01", "03"))
    assert any("03.json: observation" in line for line in differences(store, "one", "other"))


def test_the_order_of_a_plan_counts(store: Store) -> None:
    keep(store, "one", {"stages": ["os_prep", "rke2"]}, "plan.json")
    keep(store, "other", {"stages": ["rke2", "os_prep"]}, "plan.json")
    assert any(line.startswith("plan.json: stages[0]") for line in differences(store, "one", "other"))


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
