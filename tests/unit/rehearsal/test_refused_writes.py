"""A write that the API server refuses is explained by what stands in its way, and the account of the task may read that."""

from pathlib import Path

import msgspec
import yaml

from steps.clients.kube import kubeconfig
from tests.unit.rehearsal import asking
from tests.unit.rehearsal.small import SMALL
from tests.unit.rehearsal.stage_bench import stage_bench
from workflows import bringup
from workflows.plan.compiler import compile_plan
from workflows.rehearsal import simulated_cluster
from workflows.rehearsal.apiserver.routing import RequestKind
from workflows.render.bundle import render
from workflows.spec import load

CHECK, SYSTEM = "bringup-check", "kube-system"
WRITES = {
    "rke2": ("POST", f"/api/v1/namespaces/{CHECK}/services", RequestKind("bringup rke2.functional", "get", "", "services", CHECK)),
    "base_services": (
        "PATCH",
        f"/apis/helm.cattle.io/v1/namespaces/{SYSTEM}/helmcharts/cert-manager",
        RequestKind("bringup base_services.apply", "get", "helm.cattle.io", "helmcharts", SYSTEM),
    ),
}
"""By stage: a write that only its steps make, and what must be read once it is refused."""


def refuse(file: Path, method: str = "", path: str = "") -> None:
    """Let the emulated API server refuse all such requests from now on: something is in the way. Without a method: none."""
    access = kubeconfig.load(file)
    fault = {"fail_next": {"count": 1_000_000, "status": 409, "methods": [method], "path_prefix": path}} if method else {}
    simulated_cluster.call_control_api("PUT", access.server + "/emulation/disturbance", access.token, msgspec.json.encode(fault))


def test_what_is_read_of_a_refused_write_is_granted(tmp_path: Path) -> None:
    spec = load(yaml.safe_dump(SMALL))
    file = tmp_path / "cluster/kubeconfig"
    with stage_bench(spec, tmp_path) as place:
        for stage in ("os_prep", "rke2", "base_services"):
            if stage in WRITES:
                method, path, live = WRITES[stage]
                before, known = place.snapshot(), asking.asked(file)
                refuse(file, method, path)
                outcome = place.run(stage)
                refuse(file)
                assert outcome.exit_code == 65, (stage, outcome.verdict)
                rows = asking.asked(file)
                assert live in rows - known, stage
                assert live._replace(verb="list", group="", resource="resourcequotas") in rows, stage
                place.restore(before)
            outcome = place.run(stage)
            assert outcome.exit_code == 0, (stage, outcome.verdict)
        rows = asking.asked(file)
    assert not asking.refused(rows, render(compile_plan(spec), bringup.build).target_rbac)
