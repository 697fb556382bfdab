"""SUNK and Slinky with everything that a spec may ask of them, delivered directly, by Argo CD, and in wrapper charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.clients.store import Store
from tests.unit.rehearsal.small import SMALL
from workflows import bringup
from workflows.engines.folders import StateFolder
from workflows.plan.compiler import compile_plan
from workflows.rehearsal import earlier_stages
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


LONG = {"sunk by Argo CD", "slinky by Argo CD"}
"""Deliveries that other rehearsals have too, by and large."""


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.long] * (case in LONG)) for case in CASES])
def test_stage_slurm_passes(case: str, tmp_path: Path) -> None:
    spec = load(yaml.safe_dump(SMALL | {"hosts": HOSTS} | CASES[case]))
    plan = compile_plan(spec, only=["slurm"])
    run = StateFolder(tmp_path).run("r1")
    before = earlier_stages.plan_of_earlier_stages(spec, plan)
    code = rehearse(run, plan, render(plan, bringup.build), RehearsalOptions(), [], before).exit_code
    reasons = [record.verdict.reason for record in Store(run.home.store).records(run.name, "slurm", "judge") if record.verdict]
    assert code == 0, reasons
    records = Store(run.home.store).records(run.name, "slurm", "qos")
    assert [record.changes for record in records] == [("changed qos train",)]
    if spec.slurm.kind == "sunk":
        (gres,) = Store(run.home.store).records(run.name, "slurm", "gres")
        assert gres.verdict is not None
        assert gres.verdict.reason.startswith("gres.conf has 3 nodes with GPUs, 3 pods restarted")
