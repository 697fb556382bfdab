"""Contract and placement record of Slurm on Kubernetes: every line names gates of the plan, or says that none proves it."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
import yaml

from workflows.examples import path
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.plan.slurm_records import CONTRACT, DECISION, UNVERIFIED
from workflows.spec import load

SUNK = {"kind": "sunk", "repo": "oci://r.example.org/sunk", "version": "7.3.0"}
FULL = {"home": {"server": "10.0.0.5", "path": "/export/home"}, "topology": "tree", "qos": [{"name": "a"}]}
TOPICS = {
    "GPU ownership",
    "who wins when both claim capacity",
    "node drains",
    "storage",
    "identity",
    "job logs",
    "queue priority",
    "accounting",
    "topology",
    "observability",
}


def planned(slurm: dict[str, Any]) -> Plan:
    return compiled(json.dumps(slurm))


@functools.cache
def compiled(slurm: str) -> Plan:
    base = yaml.safe_load(path("h200-16").read_text(encoding="utf-8"))
    return compile_plan(load(yaml.safe_dump(base | {"slurm": json.loads(slurm)})))


@pytest.mark.parametrize("slurm", [{"kind": "slinky"}, SUNK, SUNK | FULL, SUNK | {"login": {"replicas": 0}}])
def test_every_line_names_gates_of_the_plan(slurm: dict[str, Any]) -> None:
    plan = planned(slurm)
    gates = {gate for stage in plan.stages for gate in stage.gates}
    lines = yaml.safe_load(plan.records[f"{CONTRACT}.yaml"])["lines"]
    rules = yaml.safe_load(plan.records[f"{DECISION}.yaml"])["rules"]
    assert {line["topic"] for line in lines} >= TOPICS
    for entry in (*lines, *rules):
        assert entry["gates"]
        assert {gate.partition(" ")[0] for gate in entry["gates"]} <= gates | {UNVERIFIED}


def test_what_no_gate_proves_is_unverified() -> None:
    lines = {line["topic"]: line for line in yaml.safe_load(planned({"kind": "slinky"}).records[f"{CONTRACT}.yaml"])["lines"]}
    assert lines["job logs"]["gates"] == lines["accounting"]["gates"] == lines["storage"]["gates"] == [UNVERIFIED]
    with_home = planned(SUNK | FULL).records
    shared = {line["topic"]: line for line in yaml.safe_load(with_home[f"{CONTRACT}.yaml"])["lines"]}
    assert shared["storage"]["gates"] == ["slurm/scheduling (home)"]
    assert "10.0.0.5:/export/home" in with_home[f"{CONTRACT}.md"]


TESTED = SUNK | FULL | {"login": {"test_user": "ada"}}
TREE_WITHOUT_JOBS = SUNK | {"topology": "tree", "login": {"replicas": 0}}
PROVEN = (
    ({"kind": "slinky"}, "node drains", ["slurm/drain"]),
    (SUNK, "node drains", [UNVERIFIED]),
    (SUNK, "drains by Slurm", ["slurm/drain"]),
    (SUNK, "identity", [UNVERIFIED]),
    (TESTED, "identity", ["slurm/scheduling (user)"]),
    (SUNK, "topology", [UNVERIFIED]),
    (SUNK | FULL, "topology", ["slurm/scheduling"]),
    (TREE_WITHOUT_JOBS, "topology", [UNVERIFIED]),
    (SUNK, "data plane", [UNVERIFIED]),
    (SUNK, "accounting", ["slurm/scheduling"]),
    (SUNK, "restart of slurmctld", ["slurm/scheduling (restart)"]),
    (SUNK, "rollout", [UNVERIFIED]),
    (SUNK | FULL, "queue priority", ["slurm/scheduling"]),
    (SUNK | FULL, "limits of QoS", [UNVERIFIED]),
    (SUNK, "observability", ["slurm/nodes"]),
    (SUNK, "training on several nodes", ["slurm/scheduling (two)"]),
)


@pytest.mark.parametrize(("slurm", "topic", "gates"), PROVEN)
def test_a_line_is_proven_by_what_the_planned_tasks_expect(slurm: dict[str, Any], topic: str, gates: list[str]) -> None:
    records = planned(slurm).records
    lines = yaml.safe_load(records[f"{CONTRACT}.yaml"])["lines"] + yaml.safe_load(records[f"{DECISION}.yaml"])["rules"]
    assert next(line["gates"] for line in lines if topic in (line.get("topic"), line.get("workload"))) == gates


def test_partitions_are_those_of_the_plan() -> None:
    assert "partitions gpu;" in planned(SUNK).records[f"{CONTRACT}.md"]


def test_pages_have_a_row_for_each_line() -> None:
    records = planned(SUNK | FULL).records
    for name, key in ((CONTRACT, "lines"), (DECISION, "rules")):
        rows = [line for line in records[f"{name}.md"].splitlines() if line.startswith("| ") and "---" not in line]
        assert len(rows) == len(yaml.safe_load(records[f"{name}.yaml"])[key]) + 1
        assert all(row.count("|") == 5 for row in rows)


def test_without_slurm_there_are_none() -> None:
    assert planned({"kind": "none"}).records == {}
