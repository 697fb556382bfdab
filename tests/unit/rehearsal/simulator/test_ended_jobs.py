"""Jobs of a chart that are removed before its upgrade: those that have ended, and no other."""

from __future__ import annotations

from typing import Any

from steps.clients.kube.client import Kube
from steps.runtime import job_removal
from tests.unit.rehearsal.simulator.harness import Make
from tests.unit.rehearsal.simulator.stage_runner import DirectTask, VirtualClock

STATES: dict[str, dict[str, Any]] = {
    "slurm-secret-job": {"succeeded": 1},
    "slurm-secret-job-jwt": {"failed": 1},
    "slurm-secret-job-runs": {"active": 1, "failed": 1},
    "slurm-secret-job-new": {},
    "backup": {"succeeded": 1},
}


def test_only_ended_jobs_of_the_chart_go(make: Make) -> None:
    user = make(agents=1, servers=1)
    kube = Kube.from_file(user.kubeconfig)
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-slurm"}})
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "job", "image": "simulated/job"}]}}
    for name, status in STATES.items():
        meta = {"name": name, "namespace": "tenant-slurm"}
        kube.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"suspend": True, "template": template}})
        kube.merge(f"/apis/batch/v1/namespaces/tenant-slurm/jobs/{name}/status", {"status": status})
    wanted = job_removal.ReplacedJobs(namespace="tenant-slurm", prefix="slurm-secret-job")
    job_removal.remove(DirectTask(kube, VirtualClock(user)), wanted)
    left = {name for name in STATES if kube.get(f"/apis/batch/v1/namespaces/tenant-slurm/jobs/{name}", dict) is not None}
    assert left == {"slurm-secret-job-runs", "slurm-secret-job-new", "backup"}
