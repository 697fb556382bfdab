"""Why a check's pod left no report: its newest Warning events are read once for all pods, and the cause in them is named."""

from typing import Any, TypeVar

import msgspec
import pytest

from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import FailureClass, Status
from steps.stages.shared import gate_checks, probe_checks, reader_kubelet

T = TypeVar("T")
SANDBOX = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox"
PLUGIN = f'{SANDBOX} "5e0c": plugin type="multus" failed (add): failed to find plugin "macvlan" in path [/opt/cni/bin]'
PULL = 'Failed to pull image "r.example.org/busybox:1"'


class Cluster:
    """Pods and events of one namespace; `reads` are the paths that were listed, with their field selectors."""

    def __init__(self, pods: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
        self.answers = {"pods": pods, "events": events}
        self.reads: list[tuple[str, str]] = []

    def list(self, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...]:
        kinds = path.rpartition("/")[2]
        self.reads.append((kinds, fields))
        return tuple(msgspec.convert(item, kind) for item in self.answers[kinds])

    def get(self, path: str, kind: type[T]) -> T | None:
        return None

    def text(self, path: str) -> str | None:
        return None

    def log(self, namespace: str, pod: str, container: str = "", tail: int = 200, previous: bool = False) -> str:
        return ""

    def events(self, namespace: str, name: str) -> tuple[str, ...]:
        return ()


def pod(name: str, phase: str, message: str = "") -> dict[str, Any]:
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}} if message else {}
    status = {"phase": phase, "containerStatuses": [{"name": "c", "state": ended}]}
    return {"metadata": {"name": name}, "spec": {"nodeName": f"node-of-{name}"}, "status": status}


def event(name: str, message: str, second: int, reason: str = "FailedCreatePodSandBox") -> dict[str, Any]:
    time = f"2026-11-28T10:00:{second:02d}Z"
    return {"involvedObject": {"name": name}, "reason": reason, "message": message, "lastTimestamp": time, "eventTime": None}


def test_pods_that_wait_get_their_newest_events_and_one_read_serves_all() -> None:
    events = [event("a", "third", 3), event("a", "first", 1), event("b", "other", 9), event("a", "second\nline", 2)]
    cluster = Cluster([pod("a", "Pending"), pod("b", "Pending"), pod("c", "Succeeded", '{"node": "c"}')], events)
    a, b, c = probe_checks.read(cluster, "check")
    assert a.events == tuple(f"FailedCreatePodSandBox: {text}" for text in ("first", "second line", "third"))
    assert b.events == ("FailedCreatePodSandBox: other",)
    assert c.events == ()
    assert cluster.reads == [("pods", ""), ("events", "type=Warning")]


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_events_are_not_read_for_pods_that_run_or_reported(phase: str) -> None:
    cluster = Cluster([pod("a", phase, '{"node": "a"}' if phase == "Succeeded" else "")], [event("a", "old", 1)])
    assert probe_checks.read(cluster, "check")[0].events == ()
    assert [kinds for kinds, _ in cluster.reads] == ["pods"]


def test_events_are_few_bounded_and_plain() -> None:
    events = [event("a", f"{number} {'word ' * 500}\x1b[2J", number) for number in range(20)]
    (waiting,) = probe_checks.read(Cluster([pod("a", "Pending")], events), "check")
    assert len(waiting.events) == probe_checks.MOST_EVENTS
    assert all(text.isprintable() and len(text) < probe_checks.MESSAGE + 40 for text in waiting.events)


def test_an_older_event_that_names_the_cause_is_quoted_before_the_newest() -> None:
    waiting = CheckPod(name="p", node="n", phase="Pending", events=(f"FailedCreatePodSandBox: {PLUGIN}", "FailedMount: timed out"))
    finding = gate_checks.silent(waiting, (), "a report")
    assert "failed to find plugin" in finding.seen
    assert "installs CNI plugins on this node" in finding.next_step
    assert (finding.status, finding.failure_class) == (Status.INCONCLUSIVE, FailureClass.RUNTIME)


def test_an_unknown_event_is_quoted() -> None:
    finding = gate_checks.silent(CheckPod(name="p", node="n", phase="Pending", events=("Odd: the moon is full",)), (), "a report")
    assert "event Odd: the moon is full" in finding.seen
    assert "describe pod p" in finding.next_step


@pytest.mark.parametrize(
    ("message", "failure_class", "cause"),
    [
        (PLUGIN, "runtime", "CNI plugin macvlan is not in /opt/cni/bin of this node"),
        (
            "OCI runtime create failed: failed to inject CDI devices: unresolvable CDI devices x: unknown",
            "runtime",
            "unresolvable CDI",
        ),
        (
            "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
            "dependency",
            "driver does not answer",
        ),
        ('no runtime for "nvidia" is configured', "dependency", "knows no runtime nvidia"),
        (f"{PULL}: failed to do request: dial tcp: lookup r.example.org: no such host", "dependency", "registry is not reached"),
        (f"{PULL}: failed to authorize: 401 Unauthorized", "permission", "registry refuses the image"),
        (f"{PULL}: failed to resolve reference: r.example.org/busybox:1: not found", "input", "registry has no such image"),
        ('admission webhook "validate.kyverno.svc-fail" denied the request: no host network', "permission", "denied the request"),
        (
            'MountVolume.SetUp failed for volume "c" : configmap "settings" not found',
            "dependency",
            'configmap "settings" not found',
        ),
    ],
)
def test_causes_of_kubelet_and_runtime(message: str, failure_class: str, cause: str) -> None:
    error = reader_kubelet.cause(["Scheduled: ok", message])
    assert error is not None
    assert (error.failure_class.value, cause in error.cause) == (failure_class, True), error.cause
    assert reader_kubelet.cause(["0/3 nodes are available: 3 Insufficient nvidia.com/gpu."]) is None
