"""Diagnosis of a verdict against an API server: check pods, nodes and releases that fail, plays, and writes that were refused."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from steps.clients.environment import Environment
from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Kube
from steps.contract.host_play import FailureKind, HostOutcome, HostStatus
from steps.contract.task import Task, Verb
from steps.contract.verdict import NodeVerdict, Status, Verdict, passed
from steps.errors import BadTask, Conflict, Refused, Unreachable
from steps.runtime.context import Context
from steps.runtime.diagnose import MOST_HOSTS, diagnose, diagnose_error, diagnose_play, diagnose_refusal
from tests.unit.rehearsal.apiserver.cluster_client import of_kubeconfig
from workflows.rehearsal.apiserver import RunningServer, serve_in_thread

PODS = "/api/v1/namespaces/bringup-check/pods"


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serve_in_thread() as running:
        yield running


@pytest.fixture
def kube(server: RunningServer, tmp_path: Path) -> Kube:
    path = tmp_path / "kubeconfig"
    path.write_text(server.kubeconfig)
    found = Kube.from_file(path)
    for name in ("bringup-check", "gpu-operator"):
        found.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return found


@pytest.fixture
def context(server: RunningServer, kube: Kube, tmp_path: Path) -> Context:
    """A task's context whose secrets folder holds this server's kubeconfig."""
    folders = {name: tmp_path / name for name in ("tasks", "fleet", "secrets", "store", "out")}
    for folder in folders.values():
        folder.mkdir()
    (folders["secrets"] / "kubeconfig").write_text(server.kubeconfig)
    (folders["tasks"] / "drill.apply.json").write_text("{}")
    here = Environment(**folders, run="r1", engine="local")
    return Context(Task(stage="drill", name="apply", verb=Verb.APPLY), here)


def fails(*nodes: str) -> Verdict:
    rows = tuple(NodeVerdict(node=node, status=Status.FAIL, seen="7 GPUs") for node in nodes)
    return Verdict(gate="gpu_operator/functional", status=Status.FAIL, reason="no", nodes=rows)


def make_pod(kube: Kube, namespace: str, name: str, node: str, status: dict[str, Any], **labels: str) -> None:
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "i:1"}, {"name": "side", "image": "i:2"}]}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    kube.merge(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})


def write_log(server: RunningServer, path: str, text: str) -> None:
    cluster = of_kubeconfig(server.kubeconfig, real=False)
    assert cluster.call("POST", f"/emulation/logs/{path}", text.encode(), content="text/plain").status == 200
    cluster.close()


def state(name: str, now: dict[str, Any], *, ready: bool = False, restarts: int = 0) -> dict[str, Any]:
    return {"name": name, "image": "i", "imageID": "", "ready": ready, "restartCount": restarts, "state": now}


def test_a_functional_failure_keeps_what_the_pods_said_before_they_go(kube: Kube, server: RunningServer) -> None:
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "message": '{"node":"gpu2","passed":7}'}}
    status = {"phase": "Succeeded", "containerStatuses": [state("main", done), state("side", done)]}
    for node in ("gpu1", "gpu2"):
        make_pod(kube, "bringup-check", f"cuda-{node}", node, status, **{"bringup/check": "cuda"})
    write_log(server, "bringup-check/cuda-gpu2/main", "GPU 3 fell off the bus\n")
    kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu2", "labels": {"nvidia.com/gpu.count": "7"}}})
    found = diagnose(kube, ["bringup-check", "gpu-operator"], fails("gpu2"), checks=["cuda"], check_namespace="bringup-check")
    assert found[0].what == "check pod"
    assert found[0].source == "Pod bringup-check/cuda-gpu2"
    said = {(one.what, one.source): one.content for one in found}
    assert said["log", "Pod bringup-check/cuda-gpu2, container main"] == "GPU 3 fell off the bus"
    assert "label nvidia.com/gpu.count=7" in said["node state", "node gpu2"]
    assert not [one for one in found if one.what == "could not be read"]


def test_logs_of_a_pod_with_several_containers_and_before_its_restart(kube: Kube, server: RunningServer) -> None:
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m"}}
    status = {
        "phase": "Running",
        "containerStatuses": [state("main", waits, restarts=2), state("side", {"running": {}}, ready=True)],
    }
    make_pod(kube, "gpu-operator", "driver", "gpu1", status)
    write_log(server, "gpu-operator/driver/main", "first start\n")
    write_log(server, "gpu-operator/driver/main?restart=true", "second start\n")
    found = {(one.what, one.source): one.content for one in diagnose(kube, ["gpu-operator"], fails("gpu1"))}
    assert found["log", "Pod gpu-operator/driver, container main"] == "second start"
    assert found["log before the restart", "Pod gpu-operator/driver, container main"] == "first start"
    assert found["node state", "node gpu1"] == "the API server does not know it"


def test_a_failed_install_is_found_in_kube_system(kube: Kube) -> None:
    labels = {"helmcharts.helm.cattle.io/chart": "cert-manager"}
    meta = {"name": "helm-install-cert-manager", "namespace": "kube-system", "labels": labels}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "helm", "image": "i"}]}}
    kube.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"backoffLimit": 3, "template": template}})
    about = {"kind": "HelmChart", "name": "cert-manager", "namespace": "kube-system"}
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e", "namespace": "kube-system"},
            "involvedObject": about,
            "reason": "JobFailed",
            "message": "backoff limit",
            "type": "Warning",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
    )
    found = {one.what: one.content for one in diagnose(kube, ["cert-manager"], fails())}
    assert "limits: 1 completions, 3 failures" in found["job"]
    assert found["events"] == "2026-01-01T00:00:00Z HelmChart/cert-manager JobFailed: backoff limit"


def test_a_play_shows_failed_hosts_and_those_the_verdict_does_not_pass() -> None:
    outcomes = [
        HostOutcome(host="a", status=HostStatus.OK, done=9, facts={"clock": {"offset": 0.0}}),
        HostOutcome(host="b", status=HostStatus.OK, done=9, facts={"clock": {"offset": 37.0}}),
        HostOutcome(
            host="c", status=HostStatus.FAILED, kind=FailureKind.DISK_FULL, task="install", message="no space", done=3, changed=2
        ),
    ]
    assert [one.source for one in diagnose_play(outcomes)] == ["host c"]
    first, second = diagnose_play(outcomes, fails("b", "c"))
    assert (first.source, first.content) == ("host c", "failed (disk_full), 3 tasks done, 2 changed\ntask install\nno space")
    assert (second.source, second.content) == ("host b", "ok, 9 tasks done, 0 changed\nfacts.clock.offset: 37.0")


def test_a_play_on_many_hosts_shows_the_first() -> None:
    outcomes = [HostOutcome(host=f"h{number}", status=HostStatus.UNREACHABLE) for number in range(50)]
    found = diagnose_play(outcomes, passed("os_prep/nodes", "fine"))
    assert len(found) == MOST_HOSTS + 1
    assert found[-1].content.startswith("30: h20 h21")


def test_a_refused_write_shows_the_live_object_and_who_manages_it(context: Context) -> None:
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "gpu-operator"}}
    context.kube.apply(manifest | {"stringData": {"password": "hunter2-hunter2"}})
    refusal = Conflict("409 Conflict: .data.password")
    found = {one.what: one.content for one in diagnose_refusal(context, manifest, refusal)}
    assert found["answer of the API server"] == "409 Conflict: .data.password"
    assert "data[0]: password" in found["live object"]
    assert "aHVudGVy" not in found["live object"]
    assert "managedFields" not in found["live object"]
    assert found["field managers"].startswith("bringup (Apply, ")
    assert found["namespace"] == "phase Active"


def test_a_refused_write_of_an_unknown_kind_says_what_is_missing(context: Context) -> None:
    manifest = {"apiVersion": "example.org/v1", "kind": "Nothing", "metadata": {"name": "n", "namespace": "gone"}}
    found = {one.what: one.content for one in diagnose_refusal(context, manifest, ApiError("404", 404, "NotFound"))}
    assert "404" in found["could not be read"]
    assert found["namespace"] == "it does not exist"


class Odd(Kube):
    """A client whose answers come from another server than an API server, so that `metadata` has another form."""

    def get(self, path: str, kind: Any) -> Any:
        return {"kind": "Login", "metadata": ["odd"]} if kind is dict else None


def test_an_answer_of_another_form_is_shown_as_it_is(kube: Kube, tmp_path: Path) -> None:
    context = cast(Context, SimpleNamespace(kube=Odd.from_file(tmp_path / "kubeconfig")))
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "gpu-operator"}}
    found = {one.what: one.content for one in diagnose_refusal(context, manifest, Refused("403 Forbidden"))}
    assert found["live object"].splitlines()[0] == "kind: Login"
    assert "field managers" not in found


def test_a_denied_write_shows_the_quota_and_the_webhooks_services(context: Context) -> None:
    quota = {"metadata": {"name": "most", "namespace": "gpu-operator"}, "spec": {"hard": {"pods": "3"}}}
    context.kube.create({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    path = "/api/v1/namespaces/gpu-operator/resourcequotas/most/status"
    context.kube.merge(path, {"status": {"hard": {"pods": "3"}, "used": {"pods": "3"}}})
    labels = {"kubernetes.io/service-name": "hook"}
    slice_ = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": []}
    context.kube.create(slice_ | {"metadata": {"name": "hook-1", "namespace": "bringup-check", "labels": labels}})
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "gpu-operator"}}
    answer = 'PATCH: 403 Forbidden: failed calling webhook "x": Post "https://hook.bringup-check.svc:443/validate": no endpoints'
    found = {(one.what, one.source): one.content for one in diagnose_refusal(context, manifest, Refused(answer))}
    assert found["quota", "ResourceQuota gpu-operator/most"] == "pods: 3 of 3"
    assert "hook" in found["Services without all endpoints", "namespace bringup-check"]
    assert {source for what, source in found if what in ("account", "could not be read")}, "it tells who asked, or why it cannot"


def test_an_error_shows_what_can_be_read_of_the_target(context: Context, server: RunningServer) -> None:
    spec = {"holderIdentity": "another-run", "leaseDurationSeconds": 60}
    meta = {"name": "bringup", "namespace": "kube-system"}
    context.kube.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})
    found = {one.what: one.content for one in diagnose_error(context, Refused("run another-run holds this cluster"))}
    assert "holderIdentity: another-run" in found["lease"]
    assert found["readiness"]
    server.stop()
    away = diagnose_error(context, Unreachable("GET /: refused"))
    assert [(one.what, one.source) for one in away] == [("could not be read", "readiness of the API server")]


def test_an_error_before_there_is_a_cluster_says_so_and_lists_what_was_given(context: Context) -> None:
    (context.environment.secrets / "kubeconfig").rename(context.environment.secrets / "token")
    first, *given = diagnose_error(context, Unreachable("ssh: no route to host"))
    assert "this task has no kubeconfig" in first.content
    assert {one.source: one.content for one in given} == {
        "tasks": "drill.apply.json 2 bytes",
        "fleet": "it is empty",
        "secrets": f"token {(context.environment.secrets / 'token').stat().st_size} bytes",
    }
    assert diagnose_error(context, BadTask("no such playbook")) == tuple(given)
    (context.environment.secrets / "token").rename(context.environment.secrets / "kubeconfig")
    (context.environment.secrets / "kubeconfig").write_text("nothing")
    (unusable,) = diagnose_error(context, Refused("no"))
    assert "kubeconfig is not usable" in unusable.content
