"""Diagnosis readers: each read stands alone, what is collected stays within its limits, API servers' nulls are borne."""

from typing import Any, TypeVar

import msgspec
import pytest

from steps.contract.plain_text import truncate
from steps.errors import Refused, StepError, Unreachable
from steps.runtime import diagnosis
from steps.runtime.diagnosis import Findings
from steps.runtime.diagnosis_objects import EventDiagnosis, events_text

T = TypeVar("T")
API = "/api/v1/namespaces/ns"


class StandIn:
    """A stand-in for a cluster: answers by path from plain data; an error in place of data is raised."""

    def __init__(self, answers: dict[str, Any], logs: dict[str, str | StepError] | None = None) -> None:
        self.answers, self.logs = answers, logs or {}
        self.asked: list[str] = []

    def get(self, path: str, kind: type[T]) -> T | None:
        found = self._answer(path)
        return None if found is None else msgspec.json.decode(msgspec.json.encode(found), type=kind)

    def list(self, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...] | None:
        found = self._answer(path)
        return None if found is None else msgspec.json.decode(msgspec.json.encode(found), type=tuple[kind, ...])  # type: ignore[valid-type]  # a run-time type parameter

    def text(self, path: str) -> str | None:
        return None

    def log(self, namespace: str, pod: str, container: str = "", tail: int = 200, previous: bool = False) -> str:
        assert container, "a pod of several containers has no log of its own"
        found = self.logs.get(f"{pod}/{container}{' previous' if previous else ''}", "")
        if isinstance(found, StepError):
            raise found
        return found

    def events(self, namespace: str, name: str) -> tuple[str, ...]:
        return ()

    def _answer(self, path: str) -> Any:
        self.asked.append(path)
        found = self.answers.get(path)
        if isinstance(found, StepError):
            raise found
        return found


def pod(name: str, node: str, phase: str, state: dict[str, Any], *, restarts: int = 0, ready: bool = False, **meta: Any) -> Any:
    status = {"name": "main", "ready": ready, "restartCount": restarts, "state": state}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "i:1"}, {"name": "side", "image": "i:2"}]}
    return {"metadata": {"name": name, **meta}, "spec": spec, "status": {"phase": phase, "containerStatuses": [status]}}


def ended(code: int = 0, message: str = "") -> dict[str, Any]:
    return {
        "terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "message": message, "finishedAt": None}
    }


def found_as(found: Findings) -> dict[tuple[str, str], str]:
    return {(entry.what, entry.source): entry.content for entry in found.entries()}


def test_check_pods_that_succeeded_are_kept_those_of_failing_nodes_first() -> None:
    pods = [
        pod(f"c-{node}", node, "Succeeded", ended(message='{"node":"x","devices":7}')) for node in ("n1", "n2", "n3", "n4", "n5")
    ]
    kube = StandIn({f"{API}/pods": pods}, {f"c-n{number}/main": f"bandwidth of n{number}" for number in range(1, 6)})
    found = Findings(kube)
    diagnosis.check_pods(found, "ns", ["cuda"], ["n4", "n2"])
    order = [entry.source for entry in found.entries() if entry.what == "check pod"]
    assert order == [f"Pod ns/c-{node}" for node in ("n4", "n2", "n1", "n3")]
    said = found_as(found)
    assert said["log", "Pod ns/c-n4, container main"] == "bandwidth of n4"
    assert said["report", "Pod ns/c-n4, container main"] == "node: x\ndevices: 7"


def test_a_check_without_pods_says_so() -> None:
    found = Findings(StandIn({f"{API}/pods": []}))
    diagnosis.check_pods(found, "ns", ["cuda"], [])
    assert found_as(found)["no pods", "check cuda"] == "no pod in namespace ns carries the label bringup/check=cuda"


def test_logs_are_asked_by_container_and_before_the_restart() -> None:
    crashed = pod("driver", "n1", "Running", {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, restarts=3)
    crashed["status"]["initContainerStatuses"] = [{"name": "init", "ready": True, "state": ended()}]
    logs: dict[str, str | StepError] = {
        "driver/main": "now",
        "driver/main previous": "modprobe: no such device",
        "driver/init": "x",
    }
    found = Findings(StandIn({f"{API}/pods": [crashed]}, logs))
    diagnosis.pods(found, "ns", ["n1"])
    said = found_as(found)
    assert said["log", "Pod ns/driver, container main"] == "now"
    assert said["log before the restart", "Pod ns/driver, container main"] == "modprobe: no such device"
    assert ("log", "Pod ns/driver, container init") not in said
    assert "waiting CrashLoopBackOff back-off; restarts 3" in said["pods", "node n1, namespace ns"]


def test_a_pod_shows_limits_mounts_and_probes() -> None:
    sick = pod("p", "n1", "Running", {"running": {"startedAt": None}})
    sick["spec"]["containers"][0] |= {
        "resources": {"limits": {"nvidia.com/gpu": "8", "memory": "1Gi"}},
        "volumeMounts": [{"name": "dev", "mountPath": "/dev", "readOnly": True}, {"name": "key", "mountPath": "/key"}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "web"}, "failureThreshold": 5},
        "livenessProbe": {"exec": {"command": ["sh", "-c", "true"]}},
        "startupProbe": {"tcpSocket": {"port": 80}},
    }
    volumes = [{"name": "dev", "hostPath": {"path": "/dev"}}, {"name": "key", "secret": {"secretName": "s"}}]
    sick["spec"]["volumes"] = volumes
    found = Findings(StandIn({f"{API}/pods": [sick]}))
    diagnosis.pods(found, "ns", [])
    text = found_as(found)["pod state", "Pod ns/p"]
    assert "limits memory=1Gi, nvidia.com/gpu=8" in text
    assert "mounts /dev (ro) = host /dev, /key = Secret s" in text
    assert "readiness probe: GET /healthz on web every 10 s, 5 failures" in text
    assert "liveness probe: exec sh -c true" in text
    assert "startup probe: connect to 80" in text


@pytest.mark.parametrize(
    "broken", [Refused("403 Forbidden: may not list pods"), [{"metadata": {"name": 7}}]], ids=["refused", "odd"]
)
def test_one_read_that_fails_costs_only_itself(broken: Any) -> None:
    warning = {"involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Failed", "message": "no image", "lastTimestamp": None}
    found = Findings(StandIn({f"{API}/pods": broken, f"{API}/events": [warning | {"eventTime": "2026-01-01T00:00:00.5Z"}]}))
    diagnosis.pods(found, "ns", ["n1"])
    diagnosis.warnings(found, "ns")
    said = found_as(found)
    assert said["warning events", "namespace ns"] == "2026-01-01T00:00:00.5Z Pod/p Failed: no image"
    assert ("could not be read", "pods of namespace ns") in said


def test_a_log_that_is_refused_keeps_the_state() -> None:
    sick = pod("p", "n1", "Failed", ended(1))
    found = Findings(StandIn({f"{API}/pods": [sick]}, {"p/main": Refused("403")}))
    diagnosis.pods(found, "ns", [])
    said = found_as(found)
    assert "ended with 1 Error" in said["pod state", "Pod ns/p"]
    assert said["could not be read", "log of Pod ns/p, container main"] == "403"


def test_an_api_server_that_is_away_is_not_asked_for_ever() -> None:
    kube = StandIn({f"/api/v1/nodes/n{number}": Unreachable("no route") for number in range(20)})
    found = Findings(kube)
    for number in range(20):
        diagnosis.node(found, f"n{number}")
    assert len([path for path in kube.asked if "/nodes/" in path]) == diagnosis.MOST_AWAY
    assert found.entries()[-1].what == "left out"


def test_events_are_sorted_by_the_time_that_is_set() -> None:
    def event(name: str, **fields: Any) -> EventDiagnosis:
        return msgspec.convert(
            {"involvedObject": {"kind": "Pod", "name": name}, "reason": "R", "message": "m", **fields}, EventDiagnosis
        )

    series = {"count": 9, "lastObservedTime": "2026-01-01T00:00:04Z"}
    rows = [
        event("d", eventTime="2026-01-01T00:00:01.000000Z", series=series),
        event("c", lastTimestamp="2026-01-01T00:00:03Z", count=2),
        event("a", firstTimestamp="2026-01-01T00:00:00Z"),
        event("b", metadata={"creationTimestamp": "2026-01-01T00:00:02Z"}),
    ]
    lines = events_text(rows).splitlines()
    assert [line.split()[1] for line in lines] == ["Pod/a", "Pod/b", "Pod/c", "Pod/d"]
    assert lines[-1] == "2026-01-01T00:00:04Z Pod/d R: m (9 times)"


def test_a_node_shows_what_schedules_on_it() -> None:
    node = {
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.count": "7", "kubernetes.io/os": "linux"}},
        "spec": {"unschedulable": True, "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "False", "reason": "NetworkNotReady", "message": "cni"}],
            "capacity": {"nvidia.com/gpu": "8"},
            "allocatable": {"nvidia.com/gpu": "7"},
            "nodeInfo": {"kubeletVersion": "v1.35.7"},
        },
    }
    found = Findings(StandIn({"/api/v1/nodes/n1": node}))
    diagnosis.node(found, "n1")
    diagnosis.node(found, "n2")
    said = found_as(found)
    lines = said["node state", "node n1"].splitlines()
    assert lines[:2] == ["condition Ready=False NetworkNotReady: cni", "nvidia.com/gpu: capacity 8, allocatable 7"]
    assert lines[2:] == ["taints nvidia.com/gpu=:NoSchedule; cordoned", "versions v1.35.7", "label nvidia.com/gpu.count=7"]
    assert said["node state", "node n2"] == "the API server does not know it"


def test_services_and_certificates() -> None:
    def part(service: str, *ready: bool | None) -> dict[str, Any]:
        endpoints = [{"addresses": ["10.0.0.1"], "conditions": {"ready": one}} for one in ready] or None
        return {"metadata": {"name": f"{service}-x", "labels": {"kubernetes.io/service-name": service}}, "endpoints": endpoints}

    certificate = {
        "metadata": {"name": "tls"},
        "spec": {"secretName": "tls", "issuerRef": {"kind": "ClusterIssuer", "name": "ca"}},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "DoesNotExist", "message": "no secret"}]},
    }
    fine = {"metadata": {"name": "fine"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    kube = StandIn(
        {
            "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices": [
                part("a"),
                part("b", True, False),
                part("c", None),
                part("b", True),
            ],
            "/apis/cert-manager.io/v1/namespaces/ns/certificates": [certificate, fine],
        }
    )
    found = Findings(kube)
    diagnosis.services(found, "ns")
    diagnosis.certificates(found, "ns")
    services, tls = found.entries()
    assert services.content == "Service a: 0 of 0 endpoints are ready\nService b: 2 of 3 endpoints are ready"
    assert tls.content == "issuer ClusterIssuer ca; secret tls; valid to never\nReady=False DoesNotExist: no secret"


def test_a_record_has_its_limit() -> None:
    found = Findings(StandIn({}))
    for number in range(100):
        found.add("log", f"p{number}", diagnosis.end("\n".join(['"quoted"\t line'] * 2000)))
    entries = found.entries()
    assert len(msgspec.json.encode(entries)) < diagnosis.MOST_BYTES + 1000
    assert entries[-1].what == "left out"


def test_long_texts_keep_whole_lines_and_whole_words() -> None:
    lines = [f"line {number}" for number in range(5000)]
    kept = diagnosis.end("\n".join(lines), 100).splitlines()
    assert kept == lines[-len(kept) :]
    assert diagnosis.begin("\n".join(lines), 100).splitlines()[0] == "line 0"
    assert truncate("alpha beta gamma", 12) == "alpha beta … (16 characters)"
    assert "secret" not in truncate("secret" * 200, 100)


def test_causes_come_before_what_waits_for_them() -> None:
    waits = [
        pod(f"a-{n}", "n", "Pending", {"waiting": {"reason": "PodInitializing"}}, ownerReferences=[{"name": "a"}]) for n in range(9)
    ]
    crash = {"waiting": {"reason": "CrashLoopBackOff", "message": "no kernel"}}
    crashes = [pod(f"z-{n}", "n", "Running", crash, ownerReferences=[{"name": "z"}]) for n in range(9)]
    found = Findings(StandIn({f"{API}/pods": waits + crashes}, {"z-0/main": "no kernel headers"}))
    diagnosis.pods(found, "ns", [])
    shown = [entry.source.rpartition("/")[2] for entry in found.entries() if entry.what == "pod state"]
    assert shown == ["z-0", "z-1", "z-2", "a-0", "a-1", "a-2", "z-3", "z-4"]
    assert found_as(found)["log", "Pod ns/z-0, container main"] == "no kernel headers"
    assert found_as(found)["more unhealthy pods", "namespace ns"].startswith("10: z-5")
