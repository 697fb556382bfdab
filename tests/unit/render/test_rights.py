"""Rights of a target's accounts as data, for every kind of platform: what a task reads when something is refused or reused."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.unit.rehearsal.asking import Right, may, rights
from tests.unit.rehearsal.small import SMALL
from workflows import bringup
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import render
from workflows.spec import load

DRA: dict[str, Any] = {
    "sharing": {"mode": "dra"},
    "accelerator": {"product": "H200", "per_node": 8, "driver": "operator", "operator_mode": "gpu_cluster"},
    "slurm": {"kind": "none"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "volcano": {},
    "kai": {"scheduler": {"gang": "kai"}},
    "mig": {"sharing": {"mode": "mig", "profile": "1g.18gb"}, "slurm": {"kind": "none"}, "validation": {}},
    "time_slicing": {"sharing": {"mode": "time_slicing", "replicas": 4}, "slurm": {"kind": "none"}},
    "dra": DRA,
    "argo_cd": {
        "delivery": {
            "mode": "argo_cd",
            "argo_cd": {"repo": "https://git.example.org/platform/apps.git", "revision": "v1", "project": "platform"},
        }
    },
}


@pytest.fixture(params=VARIANTS)
def platform(request: pytest.FixtureRequest) -> tuple[Plan, Mapping[str, set[Right]]]:
    """A plan, and what the accounts of its tasks may do."""
    plan = compile_plan(load(yaml.safe_dump(SMALL | VARIANTS[request.param])))
    return plan, rights(render(plan, bringup.build).target_rbac)


def test_whoever_writes_may_read_why_it_was_refused(platform: tuple[Plan, Mapping[str, set[Right]]]) -> None:
    """The object that is in the way, its namespace, and the namespace's quotas, which refuse as a missing right does."""
    missing, writers = [], 0
    for account, held in platform[1].items():
        written = {row[1:] for row in held if row[0] in ("create", "patch") and row[2] not in ("leases", "nodes")}
        writers += bool(written)
        for group, resource, space in sorted(written):
            needs = [("get", group, resource, space), ("get", "", "namespaces", space), ("list", "", "resourcequotas", space)]
            missing += [(account, *need) for need in needs if not may(held, *need)]
    assert writers > 8
    assert not missing


def test_whoever_reads_logs_of_pods_may_see_who_holds_the_target(platform: tuple[Plan, Mapping[str, set[Right]]]) -> None:
    """All but a judge's account: an error that ends a task before its verdict shows it."""
    without = [
        account
        for account, held in platform[1].items()
        if may(held, "get", "", "pods/log", "") and not may(held, "get", "coordination.k8s.io", "leases", "kube-system")
    ]
    assert not without


def test_a_task_that_reuses_may_read_what_the_gate_reads_that_must_pass_again(
    platform: tuple[Plan, Mapping[str, set[Right]]],
) -> None:
    plan, held = platform
    steps = [(f"bringup-{stage.id}-{step.name}".replace("_", "-"), step.task) for stage in plan.stages for step in stage.steps]
    judges = {task.arguments.get("gate"): account for account, task in steps if task.verb != "apply"}
    applied = [(account, gate) for account, task in steps if task.verb == "apply" and (gate := task.arguments.get("gate"))]
    pairs = [(account, judges[gate]) for account, gate in applied]
    assert len(pairs) > 3
    missing = [(one, row) for one, judge in pairs for row in held[judge] if not may(held[one], *row)]
    assert not missing
