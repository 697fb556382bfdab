"""Nodes that a run goes on without: compared over all shards, cordoned once there is a target, listed, and released by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.runs import quarantine
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, Verb, encode, file_name
from steps.contract.verdict import FailureClass, NodeVerdict, Status, of_nodes
from steps.verbs import judge
from workflows.app import quarantine_list
from workflows.cli import main
from workflows.engines.folders import StateFolder

NODES = "/api/v1/nodes"
FACTS: dict[str, Any] = {
    "os_id": "debian",
    "os_version": "12",
    "kernel": "6.1",
    "architecture": "x86_64",
    "python": "3.11.2",
    "clock": {"epoch": 1.0},
    "gpus": 8,
    "nvswitches": 0,
    "nouveau_loaded": False,
    "selinux": "none",
}


def evidence(stage: str, task: str, shard: int, bad: tuple[str, ...], *names: str, **over: Any) -> Evidence:
    rows = [
        NodeVerdict(node=name, status=Status.FAIL, seen="7 GPUs", expected="8", next_step="x", failure_class=FailureClass.HARDWARE)
        if name in bad
        else NodeVerdict(node=name, status=Status.PASS)
        for name in names
    ]
    told = {
        "run": "r1",
        "stage": stage,
        "task": task,
        "verb": "play",
        "shard": shard,
        "attempt": 1,
        "input_digest": "sha256:x",
        "engine": "local",
        "started": 1.0,
        "finished": 2.0,
        "verdict": of_nodes(f"{stage}/nodes", rows, what="fine"),
        **over,
    }
    return Evidence(**told)


def keep(desk: Any, record: Evidence) -> None:
    desk.store.write_evidence(record, canonical)


def judging(stage: str, task: str, needed: int, *, fanned: bool = False, cordon: bool = False, members: str = "agent") -> Task:
    check = {"task": task, "gate": f"{stage}/nodes", "fanned": fanned, "per_node": True, "select": "all" if fanned else members}
    arguments = {"checks": [check], "needed": needed, "members": members, "required": "server" if fanned else "", "cordon": cordon}
    return Task(stage=stage, name="judge", verb=Verb.JUDGE, arguments=arguments)


def observed(**machines: dict[str, Any]) -> dict[str, Any]:
    """Return the observation of one shard's play: facts by node, with those that differ given for each machine."""
    return {
        "nodes": [
            {"node": name, "outcome": "ok", "facts": {**FACTS, "machine_id": name * 4, **own}} for name, own in machines.items()
        ]
    }


@pytest.fixture
def prepared(desk: Any) -> Any:
    """A desk whose two shards were played by os_prep; the caller stores what they observed."""
    play = Task(stage="os_prep", name="play", verb=Verb.PLAY, expectations={"items": ["root"], "same": ["architecture"]})
    (desk.root / "tasks" / file_name("os_prep", "play")).write_bytes(encode(play))
    return desk


def test_clones_in_two_shards_are_told(prepared: Any) -> None:
    twin = {"machine_id": "cafe" * 8}
    keep(prepared, evidence("os_prep", "play", 0, (), "sv1", observation=observed(sv1=twin)))
    rest = observed(gpu1={}, gpu2=twin, gpu3={})
    keep(prepared, evidence("os_prep", "play", 1, (), "gpu1", "gpu2", "gpu3", observation=rest))
    assert judge.run(prepared.context(judging("os_prep", "play", 2, fanned=True))) == 65
    verdict = prepared.record("os_prep", "judge").verdict
    assert verdict.reason.startswith("sv1 must pass; sv1: same machine id as gpu2")
    assert {row.node: row.status for row in verdict.nodes}["gpu2"] is Status.FAIL


def test_the_odd_machine_of_the_fleet_is_set_aside_although_it_is_alone_in_its_shard(prepared: Any) -> None:
    keep(prepared, evidence("os_prep", "play", 0, (), "sv1", observation=observed(sv1={})))
    keep(prepared, evidence("os_prep", "play", 1, (), "gpu1", "gpu2", observation=observed(gpu1={}, gpu2={})))
    arm = observed(gpu3={"architecture": "aarch64"})
    keep(prepared, evidence("os_prep", "play", 2, (), "gpu3", observation=arm))
    assert judge.run(prepared.context(judging("os_prep", "play", 2, fanned=True))) == 0
    (entry,) = quarantine.entries(prepared.store.keys(quarantine.folder("r1")), prepared.store.read)
    assert (entry.node, entry.stage) == ("gpu3", "os_prep")
    assert "architecture is aarch64; expected x86_64 as on 3 of 4 nodes" in entry.reason


def test_machines_that_differ_as_they_should_pass(prepared: Any) -> None:
    keep(prepared, evidence("os_prep", "play", 0, (), "sv1", observation=observed(sv1={})))
    rest = observed(gpu1={}, gpu2={}, gpu3={})
    keep(prepared, evidence("os_prep", "play", 1, (), "gpu1", "gpu2", "gpu3", observation=rest))
    assert judge.run(prepared.context(judging("os_prep", "play", 3, fanned=True))) == 0


def a_node(api: Any, name: str, *, cordoned: bool = False) -> None:
    spec = {"unschedulable": True} if cordoned else {}
    assert api.user.post(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}).status == 201


def shown(api: Any, name: str) -> tuple[bool, dict[str, Any]]:
    """Return whether a node is cordoned, and the content of bringup's annotation on it."""
    body = api.user.get(f"{NODES}/{name}").body
    note = body["metadata"].get("annotations", {}).get(quarantine.ANNOTATION, "{}")
    return body["spec"].get("unschedulable", False), json.loads(note)


def aside_in_os_prep(desk: Any, *nodes: str) -> None:
    rows = tuple(
        quarantine.QuarantineEntry(node=name, stage="os_prep", gate="os_prep/judge", reason=f"{name}: full disk") for name in nodes
    )
    desk.store.replace(quarantine.key("r1", "os_prep"), quarantine.encode(rows))


def test_a_later_judge_cordons_what_an_earlier_stage_set_aside(desk: Any, api: Any) -> None:
    for name in ("gpu1", "gpu2", "gpu3"):
        a_node(api, name)
    aside_in_os_prep(desk, "gpu1", "gpu4")
    keep(desk, evidence("rke2", "nodes", 0, ("gpu2",), "gpu2", "gpu3"))
    task = judging("rke2", "nodes", 1, cordon=True)
    assert judge.run(desk.context(task)) == 0
    assert shown(api, "gpu1") == (True, {"run": "r1", "stage": "os_prep", "reason": "gpu1: full disk"})
    assert shown(api, "gpu2")[0]
    assert shown(api, "gpu3") == (False, {})
    assert desk.record("rke2", "judge").changes == ("quarantined gpu2", "cordoned gpu1", "cordoned gpu2")
    again = desk.context(task)
    assert judge.run(again) == 0
    assert desk.record("rke2", "judge").changes == ("quarantined gpu2",)


def test_somebody_else_s_cordon_stays_theirs(desk: Any, api: Any) -> None:
    a_node(api, "gpu1", cordoned=True)
    aside_in_os_prep(desk, "gpu1")
    keep(desk, evidence("rke2", "nodes", 0, (), "gpu2", "gpu3"))
    assert judge.run(desk.context(judging("rke2", "nodes", 2, cordon=True))) == 0
    assert shown(api, "gpu1") == (True, {})


def test_a_stage_that_fails_cordons_nobody(desk: Any, api: Any) -> None:
    a_node(api, "gpu1")
    aside_in_os_prep(desk, "gpu1")
    keep(desk, evidence("rke2", "nodes", 0, ("gpu2", "gpu3"), "gpu2", "gpu3"))
    assert judge.run(desk.context(judging("rke2", "nodes", 2, cordon=True))) == 65
    assert shown(api, "gpu1") == (False, {})


def test_without_a_target_nobody_is_cordoned(desk: Any) -> None:
    aside_in_os_prep(desk, "gpu1")
    keep(desk, evidence("rke2", "nodes", 0, (), "gpu2", "gpu3"))
    assert judge.run(desk.context(judging("rke2", "nodes", 2, cordon=True))) == 0


# ---- list and release ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(desk: Any, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    """A home whose run r1 is the desk's."""
    made = StateFolder(desk.root)
    made.run("r1").engine.mkdir(parents=True)
    header(desk)
    monkeypatch.setenv("BRINGUP_HOME", str(desk.root))
    return made


def header(desk: Any, run: str = "r1", **over: Any) -> None:
    told = {"run": run, "engine": "local", "plan": "p", "cluster": "c", "owner": "o", "revision": "1", **over}
    desk.store.replace(run_records.header_key(run), canonical(run_records.Header(**told)))


def with_cluster(home: StateFolder, api: Any) -> None:
    secrets = home.run("r1").inputs / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "kubeconfig").write_text(api.kubeconfig)


def test_list(desk: Any, home: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["quarantine", "list"]) == 0
    assert capsys.readouterr().out == "run r1 set no node aside\n"
    aside_in_os_prep(desk, "gpu2", "gpu1")
    assert main.run(["quarantine", "list", "r1", "-o", "json"]) == 0
    row = {"node": "gpu1", "stage": "os_prep", "reason": "gpu1: full disk", "released": ""}
    assert json.loads(capsys.readouterr().out)[0] == row
    assert main.run(["quarantine", "list"]) == 0
    assert "gpu2: full disk" in capsys.readouterr().out
    assert home.runs() == ("r1",)


def test_release_takes_our_cordon_off_and_says_who_did_it(
    desk: Any, home: StateFolder, api: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    a_node(api, "gpu1")
    aside_in_os_prep(desk, "gpu1")
    keep(desk, evidence("rke2", "nodes", 0, (), "gpu2", "gpu3"))
    assert judge.run(desk.context(judging("rke2", "nodes", 2, cordon=True))) == 0
    with_cluster(home, api)
    assert quarantine_list.reminder("c", ["gpu1"]) == [
        "gpu1 was set aside by run r1 in os_prep and is not released: gpu1: full disk",
    ]
    assert main.run(["quarantine", "release", "gpu1", "--as", "ada"]) == 0
    assert "released gpu1 as ada, uncordoned" in capsys.readouterr().out
    assert shown(api, "gpu1") == (False, {})
    stored = quarantine.decode_release(Path(desk.root / "store" / quarantine.release_key("r1", "gpu1")).read_bytes())
    assert (stored.who, stored.stage, stored.uncordoned) == ("ada", "os_prep", True)
    assert quarantine_list.reminder("c", ["gpu1"]) == []
    assert main.run(["quarantine", "release", "gpu1", "--as", "bob"]) == 64
    assert "gpu1 of run r1 was released by ada at" in capsys.readouterr().err


def test_release_leaves_somebody_else_s_cordon(desk: Any, home: StateFolder, api: Any, capsys: pytest.CaptureFixture[str]) -> None:
    a_node(api, "gpu1", cordoned=True)
    aside_in_os_prep(desk, "gpu1")
    with_cluster(home, api)
    assert main.run(["quarantine", "release", "gpu1", "--as", "ada"]) == 0
    assert "uncordoned" not in capsys.readouterr().out
    assert shown(api, "gpu1") == (True, {})


def test_release_leaves_the_cordon_of_another_run(
    desk: Any, home: StateFolder, api: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    a_node(api, "gpu1")
    aside_in_os_prep(desk, "gpu1")
    note = {"run": "r2", "stage": "rke2", "reason": "gpu1: broken link"}
    patch = {"metadata": {"annotations": {quarantine.ANNOTATION: json.dumps(note)}}, "spec": {"unschedulable": True}}
    assert api.user.patch(f"{NODES}/gpu1", patch).status == 200
    with_cluster(home, api)
    assert main.run(["quarantine", "release", "gpu1", "--as", "ada"]) == 0
    said = "released gpu1 as ada; its cordon belongs to run r2: bringup quarantine release gpu1 --run r2"
    assert said in capsys.readouterr().out
    assert shown(api, "gpu1") == (True, note)


def test_release_by_what_can_be_no_name(desk: Any, home: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    aside_in_os_prep(desk, "gpu1")
    assert main.run(["quarantine", "release", "gpu1", "--as", "ada lovelace"]) == 64
    assert "'ada lovelace' cannot be a name" in capsys.readouterr().err


def test_release_of_a_node_that_is_not_quarantined(desk: Any, home: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    aside_in_os_prep(desk, "gpu1")
    assert main.run(["quarantine", "release", "gpu1", "gpu9", "--run", "r1", "--as", "ada"]) == 64
    said = capsys.readouterr().err
    assert "gpu9 is not quarantined in run r1" in said
    assert "quarantined there: gpu1" in said
    assert not quarantine_list.listed(home, "r1")[0].released
    assert main.run(["quarantine", "release", "gpu1"]) == 64
    assert "a release needs the name" in capsys.readouterr().err


def test_another_cluster_is_not_touched(desk: Any, home: StateFolder, api: Any, capsys: pytest.CaptureFixture[str]) -> None:
    a_node(api, "gpu1")
    aside_in_os_prep(desk, "gpu1")
    header(desk, target_uid="3f1c")
    with_cluster(home, api)
    assert main.run(["quarantine", "release", "gpu1", "--as", "ada"]) == 64
    assert "the run worked on 3f1c" in capsys.readouterr().err
    assert not quarantine_list.listed(home, "r1")[0].released


def test_a_rehearsal_has_no_cluster_any_more_and_reminds_of_nothing(desk: Any, home: StateFolder) -> None:
    aside_in_os_prep(desk, "gpu1")
    header(desk, simulated=True)
    assert quarantine_list.reminder("c", ["gpu1"]) == []
    assert main.run(["quarantine", "release", "gpu1", "--as", "ada"]) == 0
    assert quarantine_list.listed(home, "r1")[0].released.startswith("ada at ")


def test_the_reminder_is_about_hosts_of_the_plan_and_this_cluster(desk: Any, home: StateFolder) -> None:
    aside_in_os_prep(desk, "gpu1")
    assert quarantine_list.reminder("other", ["gpu1"]) == []
    assert quarantine_list.reminder("c", ["gpu2"]) == []
    assert len(quarantine_list.reminder("c", ["gpu1"])) == len(home.runs())
