"""SUNK and Slinky with everything that a spec may ask of them, delivered directly, by Argo CD, and in wrapper charts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.clients.store import Store
from tests.unit.rehearsal.small import SMALL
from workflows import bringup
from workflows.engines import open_approvals
from workflows.engines.folders import RunFolder, StateFolder
from workflows.plan.compiler import compile_plan
from workflows.rehearsal import approver, earlier_stages
from workflows.rehearsal.rehearsal_run import RehearsalOptions, rehearse
from workflows.render.bundle import render
from workflows.spec import load

SCRIPTS = {"prolog": {"10-check.sh": "#!/bin/sh\nset -e  \n# {{ kept }}\ttabs and ends of lines \n"}}
ARGO_CD = {
    "mode": "argo_cd",
    "argo_cd": {"repo": "https://git.example.org/platform/apps.git", "revision": "v1", "project": "platform"},
}
SUNK: dict[str, Any] = {"kind": "sunk", "repo": "oci://r.example.org/sunk", "version": "7.3.0", **SCRIPTS}
SLINKY: dict[str, Any] = {
    "kind": "slinky",
    "accounting": {"host": "mariadb.slurm.svc", "password": {"file": "./db_password"}},
    **SCRIPTS,
}
COMMON: dict[str, Any] = {
    "partitions": [{"name": "train", "groups": "gpu", "default": True, "qos": "train"}],
    "qos": [{"name": "train", "priority": 10, "gpus_per_user": 16}],
    "topology": "tree",
    "node": {"cpus": 64, "memory_gib": 1000},
    "home": {"storage_class": "local-path", "size": "1Gi"},
}
HOSTS = {name: {**group, "topology": {"leaf": "leaf{block:2}"}} for name, group in SMALL["hosts"].items()}
CASES: dict[str, dict[str, Any]] = {
    "sunk": {"slurm": SUNK | COMMON | {"credentials": {"file": "./docker_config.json"}}},
    "sunk by Argo CD": {"slurm": SUNK | COMMON, "delivery": ARGO_CD},
    "sunk in wrappers": {"slurm": SUNK | COMMON | {"layout": "wrapper"}, "delivery": ARGO_CD},
    "slinky": {"slurm": SLINKY | COMMON},
    "slinky by Argo CD": {"slurm": SLINKY | COMMON, "delivery": ARGO_CD},
}


LOGGED_IN = "slurm_login_stuck"
"""Fault under which alice is logged in to a login pod of an old revision: an approval is asked, and the pod is deleted in vain."""
LONG = {"sunk by Argo CD", "slinky"}
"""Cases that others show too: Argo CD installs SUNK in wrappers, and the sweeps of faults have Slinky without Argo CD."""


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.long] * (case in LONG)) for case in CASES])
def test_stage_slurm_passes(case: str, tmp_path: Path) -> None:
    spec = load(yaml.safe_dump(SMALL | {"hosts": HOSTS} | CASES[case]))
    plan = compile_plan(spec, only=["slurm", "slurm_login"] if spec.slurm.kind == "sunk" else ["slurm"])
    run = StateFolder(tmp_path).run("r1")
    before = earlier_stages.plan_of_earlier_stages(spec, plan)
    options, observers = RehearsalOptions(faults=[LOGGED_IN] * (case == "sunk")), [approver.approving_observer(run)]
    code = rehearse(run, plan, render(plan, bringup.build), options, observers, before).exit_code
    records = functools.partial(Store(run.home.store).records, run.name)
    reasons = {stage.id: [entry.verdict.reason for entry in records(stage.id, "judge") if entry.verdict] for stage in plan.stages}
    assert code == (65 if case == "sunk" else 0), reasons
    assert [entry.changes for entry in records("slurm", "qos")] == [("changed qos train",)]
    if spec.slurm.kind == "sunk":
        (gres,) = records("slurm", "gres")
        assert gres.verdict is not None
        assert gres.verdict.reason.startswith("gres.conf has 3 nodes with GPUs, 3 pods restarted")
        login_pods_are_replaced_if_approved(run, records, asked=case == "sunk")


def login_pods_are_replaced_if_approved(run: RunFolder, records: Any, *, asked: bool) -> None:
    (replace,), confirmed = records("slurm_login", "replace"), records("slurm_login", "confirm")
    assert [entry.verdict.status.value for entry in confirmed] == ["pass"] * asked
    assert (
        replace.changes
        == ("deleted login pod tenant-slurm/slurm-login-0 of an old revision (slurm-login-0: alice (pts/0))",) * asked
    )
    if asked:
        shown = open_approvals.read_approval(run, "approve-slurm-login").about
        assert "; replacing login pods ends sessions, slurm-login-0: alice (pts/0); evidence sha256:" in shown
        (judged,) = records("slurm_login", "judge")
        assert "slurm-login-0 is of the old revision" in judged.verdict.reason
