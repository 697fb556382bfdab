"""Readers of the chart probes on recorded objects."""

import base64
import gzip
import os
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml

from steps.contract.objects.charts import Owner, Release, ReleaseState
from steps.contract.verdict import FailureClass
from steps.stages.shared import gate_charts as gates
from steps.stages.shared import kube_objects, probe_applications, probe_charts, probe_workloads
from steps.stages.shared.kube_reader import KubeReader, Scope

SAMPLES = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[4] / "shared") / "samples/k8s"


def packed(body: Any, *, zipped: bool = True) -> str:
    data = msgspec.json.encode(body)
    return base64.b64encode(base64.b64encode(gzip.compress(data, mtime=0) if zipped else data)).decode()


def test_release_secret_holds_the_chart_version() -> None:
    body = {"chart": {"metadata": {"version": "v26.3.3"}}, "info": {"status": "deployed", "description": "Install complete"}}
    for zipped in (True, False):
        found = probe_charts.decode_release(packed(body, zipped=zipped))
        assert (found.chart.metadata.version, found.info.description) == ("v26.3.3", "Install complete")


@pytest.mark.parametrize("text", ["", "???", "aGFsbG8=", base64.b64encode(b"H4sI").decode(), packed([1, 2])])
def test_an_unreadable_release_secret_gives_no_version(text: str) -> None:
    assert probe_charts.decode_release(text).chart.metadata.version == ""


def test_the_change_of_a_spec_is_not_that_of_its_status_or_annotations() -> None:
    raw = {
        "name": "x",
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "managedFields": [
            {"manager": "bringup", "operation": "Apply", "time": "2026-11-21T11:00:00Z", "fieldsV1": {"f:spec": {"f:version": {}}}},
            {"manager": "helm-controller", "operation": "Update", "time": "2026-11-21T12:00:00Z", "fieldsV1": {"f:metadata": {}}},
            {"manager": "operator", "time": "2026-11-21T13:00:00Z", "subresource": "status", "fieldsV1": {"f:spec": {}}},
        ],
    }
    meta = msgspec.json.decode(msgspec.json.encode(raw), type=kube_objects.ManagedMeta)
    assert kube_objects.spec_change_time(meta) == 1795258800.0
    assert kube_objects.spec_change_time(msgspec.structs.replace(meta, managed_fields=())) == 1795255200.0
    assert kube_objects.spec_change_time(kube_objects.ManagedMeta()) == 0.0


def test_releases_come_from_the_task_or_from_the_gate_that_apply_checks_again() -> None:
    release = {"name": "x", "namespace": "y", "version": "1"}
    for arguments in ({"releases": [release]}, {"gate_expectations": {"releases": [release]}}):
        assert probe_charts.scoped_releases(Scope(arguments=arguments)) == (Release(name="x", namespace="y", version="1"),)
    assert probe_charts.scoped_releases(Scope()) == ()


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="recorded objects are not there (BRINGUP_TEST_DATA)")
def test_recorded_application_with_an_error_behind_healthy() -> None:
    recorded = yaml.safe_load((SAMPLES / "argocd_application_comparisonerror.yaml").read_text())
    found = probe_applications.application(msgspec.convert(recorded, probe_applications.RawApplication, strict=False))
    assert (found.health, found.phase, found.sync) == ("Healthy", "Succeeded", "Unknown")
    want = Release(name="x", namespace="y", version="", owner=Owner.ARGO_CD, home="argocd", revision="HEAD", workloads=0)
    finding = gates.problem((ReleaseState(name="x", application=found),), (want,))
    assert finding is not None
    assert finding.failure_class is FailureClass.MANIFEST_GENERATION
    assert "app path does not exist" in finding.seen


class ReleasedSets:
    """Two StatefulSets of release `slurm` with the strategy OnDelete, whose only pod is of an old revision."""

    def list(
        self, path: str, kind: type[kube_objects.DeployedWorkload], labels: str = "", fields: str = ""
    ) -> tuple[kube_objects.DeployedWorkload, ...]:
        if not path.endswith("/statefulsets"):
            return ()
        status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 0, "readyReplicas": 1}
        template = {"spec": {"containers": [{"name": "main", "image": "example.org/login:1"}]}}
        spec = {"replicas": 1, "updateStrategy": {"type": "OnDelete"}, "template": template}
        metas = ({"name": name, "generation": 1} for name in ("slurm-login", "slurm-mysql"))
        return tuple(msgspec.convert({"metadata": meta, "spec": spec, "status": status}, kind) for meta in metas)


def test_old_pods_count_as_updated_only_where_a_later_stage_replaces_them() -> None:
    for names, settled in (((), []), (("slurm-login",), ["slurm-login"])):
        every = probe_workloads.read(cast("KubeReader", ReleasedSets()), "slurm", lambda _: True, on_delete=names)
        assert len(every) == 2
        assert [workload.name for workload in every if workload.settled()] == settled


def test_a_crash_loop_is_trouble_also_while_its_container_runs_again() -> None:
    crashed = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": None}
    container = {"name": "web", "ready": False, "restartCount": 4, "state": {"running": {}}, "lastState": {"terminated": crashed}}
    raw = {"metadata": {"name": "web-0"}, "status": {"phase": "Running", "containerStatuses": [container]}}
    found = probe_workloads.trouble(msgspec.convert(raw, kube_objects.Pod))
    assert found is not None
    assert (found.reason, found.message, found.container) == ("OOMKilled", "exit code 137 before restart 4", "web")
    container["ready"] = True
    assert probe_workloads.trouble(msgspec.convert(raw, kube_objects.Pod)) is None
