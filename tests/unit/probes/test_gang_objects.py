"""The gang probes on objects as API servers return them: queues with limits, ended gangs, events, and schedulers of anybody."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from steps.stages.gang import probe, probe_parts, probe_queues, probe_world
from steps.stages.gang.contract import GangObservation, Queue, Scheduler
from steps.stages.shared import quantities
from steps.stages.shared.kube_reader import Scope

T = TypeVar("T")
EVENTS = "/api/v1/namespaces/bringup-check/events"
PODS = "/api/v1/namespaces/bringup-check/pods"


class RecordedCluster:
    """A cluster that answers reads with objects by API path; field selectors are applied to events."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self._objects = objects

    def get(self, path: str, kind: type[T]) -> T | None:
        answer = self._objects.get(path)
        return None if answer is None else msgspec.json.decode(msgspec.json.encode(answer), type=kind)

    def list(self, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...] | None:
        rows = self._objects.get(path)
        if rows is None:
            return None
        name, _, value = fields.partition("=")
        chosen = [row for row in rows if not fields or _field(row, name) == value]
        return msgspec.json.decode(msgspec.json.encode(chosen), type=tuple[kind, ...])  # type: ignore[valid-type]  # a run-time type

    def text(self, path: str) -> str | None:
        return None

    def log(self, namespace: str, pod: str, container: str = "", tail: int = 200, previous: bool = False) -> str:
        return ""

    def events(self, namespace: str, name: str) -> tuple[str, ...]:
        return ()


def _field(row: dict[str, Any], name: str) -> Any:
    for part in name.split("."):
        row = row.get(part, {})
    return row


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8.0),
        (8, 8.0),
        ("500m", 0.5),
        ("2Gi", 2.0**31),
        ("3k", 3000.0),
        ("1e3", 1000.0),
        ("-1", None),
        ("", None),
        ("two", None),
    ],
)
def test_quantities(text: str | int, number: float | None) -> None:
    assert quantities.quantity(text) == number


# ---- queues --------------------------------------------------------------------------------------------------------------------

VOLCANO_QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
KAI_QUEUES = "/apis/scheduling.run.ai/v2/queues"


def volcano(name: str, spec: dict[str, Any], state: str = "Open") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec, "status": {"state": state}}


def volcano_queue(*queues: dict[str, Any], resource: str = "nvidia.com/gpu") -> Queue | None:
    kube = RecordedCluster({VOLCANO_QUEUES: queues})
    return probe_queues.gang_queue(kube, Scheduler.VOLCANO, "default", resource, 128.0)


def test_a_volcano_queue_is_limited_by_itself_its_parents_and_the_guarantees_of_others() -> None:
    limited = volcano("default", {"capability": {"nvidia.com/gpu": 16, "cpu": "64"}})
    assert volcano_queue(limited) == Queue(name="Queue default", active=True, why="state Open", limit=16.0)
    assert volcano_queue(limited, resource="nvidia.com/gpu.shared") == Queue(name="Queue default", active=True, why="state Open")
    child = volcano("default", {"parent": "team"})
    team = volcano("team", {"capability": {"nvidia.com/gpu": "32"}, "parent": "root"})
    root = volcano("root", {"parent": "root"})
    found = volcano_queue(child, team, root)
    assert found is not None
    assert found.limit == 32.0
    reserving = volcano("other", {"guarantee": {"resource": {"nvidia.com/gpu": "100"}}})
    found = volcano_queue(volcano("default", {}, "Closed"), reserving)
    assert found == Queue(name="Queue default", active=False, why="state Closed", limit=28.0)
    assert volcano_queue(reserving) is None


def test_a_kai_queue_without_a_limit_says_so_and_a_silent_one_admits_nothing() -> None:
    def limit(spec: dict[str, Any], resource: str = "nvidia.com/gpu") -> float | None:
        queues = [
            {"metadata": {"name": "q"}, "spec": spec},
            {"metadata": {"name": "top"}, "spec": {"resources": {"gpu": {"limit": 4}}}},
        ]
        queue = probe_queues.gang_queue(RecordedCluster({KAI_QUEUES: queues}), Scheduler.KAI, "q", resource, 128.0)
        assert queue is not None
        return queue.limit

    unlimited = {"resources": {"gpu": {"quota": 0, "limit": -1, "overQuotaWeight": 1}}}
    assert limit(unlimited) is None
    assert limit({}) == 0.0
    assert limit(unlimited | {"parentQueue": "top"}) == 4.0
    assert limit({}, resource="pods") is None


def test_quotas_are_those_of_queues_and_cohorts_without_queues_of_checks() -> None:
    def group(*resources: dict[str, Any]) -> dict[str, Any]:
        return {
            "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "gpu", "resources": list(resources)}]}]
        }

    own = {"name": "nvidia.com/gpu", "nominalQuota": 8, "borrowingLimit": "4"}
    kube = RecordedCluster(
        {
            f"{probe_queues.KUEUE}/clusterqueues": [
                {"metadata": {"name": "research"}, "spec": group(own) | {"cohortName": "all"}},
                {"metadata": {"name": "gang-fit", "labels": {"bringup/check": "gang-fit"}}, "spec": group(own)},
            ],
            f"{probe_queues.KUEUE}/cohorts": [
                {"metadata": {"name": "all"}, "spec": group({"name": "nvidia.com/gpu", "nominalQuota": "16", "lendingLimit": "2"})}
            ],
        }
    )
    quotas = probe_queues.quotas(kube, probe_queues.cluster_queues(kube))
    rows = [(row.queue, row.flavor, row.nominal, row.cohort, row.borrowing, row.lending) for row in quotas]
    assert rows == [("ClusterQueue research", "gpu", 8.0, "all", 4.0, None), ("Cohort all", "gpu", 16.0, "all", None, 2.0)]


def test_only_expected_nodes_with_the_labels_of_a_flavor_count() -> None:
    nodes = [
        {"metadata": {"name": name, "labels": {"gpu": product}}, "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "500m"}}}
        for name, product in (("gpu001", "a"), ("gpu002", "a"), ("gpu003", "b"), ("strange", "a"))
    ]
    kube = RecordedCluster({"/api/v1/nodes": nodes})
    capacity = probe_world.capacity(kube, {"gpu": {"gpu": "a"}, "none": {"gpu": "c"}}, ("gpu001", "gpu002", "gpu003"))
    assert capacity == {"gpu": {"nvidia.com/gpu": 16.0, "cpu": 1.0}, "none": {}}


# ---- schedulers of anybody -----------------------------------------------------------------------------------------------------


def workload(name: str, image: str, replicas: int = 1, **container: Any) -> dict[str, Any]:
    space, _, short = name.partition("/")
    pod = {"containers": [{"name": "main", "image": image, **container}]}
    return {"metadata": {"namespace": space, "name": short}, "spec": {"replicas": replicas, "template": {"spec": pod}}}


IMAGES = {
    "docker.io/volcanosh/vc-scheduler:v1.15.1": "volcano",
    "mirror.example.org:5000/x/vc-controller-manager@sha256:00": "volcano",
    "ghcr.io/nvidia/kai-scheduler/scheduler:v0.9.1": "kai",
    "ghcr.io/kai-scheduler/kai-scheduler/podgrouper:v0.16.8": "kai",
    "registry.k8s.io/kueue/kueue:v0.19.2": "kueue",
    "registry.redhat.io/kueue/kueue-rhel9@sha256:00": "kueue",
    "docker.io/volcanosh/vc-agent:v1.15.1": "",
    "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueueviz-backend:main": "",
    "registry.k8s.io/kube-scheduler:v1.35.7": "",
    "registry.example.org/scheduler:1": "",
}


@pytest.mark.parametrize(("image", "product"), IMAGES.items())
def test_parts_are_known_by_their_image(image: str, product: str) -> None:
    kube = RecordedCluster({"/apis/apps/v1/deployments": [workload("a/b", image), workload("a/off", image, replicas=0)]})
    parts = probe_parts.parts(kube)
    assert [(part.product.value, part.name, part.image) for part in parts] == (
        [(product, "Deployment a/b", image)] if product else []
    )


@pytest.mark.parametrize(
    ("arguments", "product"),
    [
        (["--scheduler-name=volcano", "-v=3"], ["volcano"]),
        (["--scheduler-name", "kai-scheduler"], ["kai"]),
        (["--gang-scheduler-name=volcano"], []),
        (["--scheduler-name=volcano-two"], []),
        (["--scheduler-name=tenant-slurm-scheduler"], []),
    ],
)
def test_parts_are_known_by_the_scheduler_name_that_they_take(arguments: list[str], product: list[str]) -> None:
    kube = RecordedCluster({"/apis/apps/v1/statefulsets": [workload("a/b", "registry.example.org/placer:7", args=arguments)]})
    assert [part.product.value for part in probe_parts.parts(kube)] == product


def test_parts_are_known_by_the_api_group_that_they_serve() -> None:
    def hook(group: str, **client: Any) -> dict[str, Any]:
        return {"name": "h", "clientConfig": client, "rules": [{"apiGroups": [group], "resources": ["jobs"]}]}

    service = {"service": {"namespace": "ml-tools", "name": "admission"}}
    hooks = [
        hook("batch.volcano.sh", **service),
        hook("", **service),
        hook("batch.volcano.sh", url="https://x"),
        {"name": "no-rules"},
    ]
    kube = RecordedCluster({"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": [{"webhooks": hooks}]})
    parts = probe_parts.parts(kube)
    assert [(part.name, part.serves) for part in parts] == [("Service ml-tools/admission", "webhooks for batch.volcano.sh")]


# ---- gangs ---------------------------------------------------------------------------------------------------------------------


def pod(name: str, **status: Any) -> dict[str, Any]:
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T10:00:12Z"}
    meta = {"name": name, "namespace": "bringup-check", "labels": {"bringup/check": "gang-fit"}}
    return {"metadata": meta, "spec": {"nodeName": "gpu001"}, "status": {"conditions": [bound], **status}}


def ended(code: int, reason: str, message: str, started: str = "2026-11-21T10:00:15Z") -> dict[str, Any]:
    end = {"exitCode": code, "reason": reason, "message": message, "startedAt": started, "finishedAt": "2026-11-21T10:00:45Z"}
    return {"containerStatuses": [{"name": "check", "state": {"terminated": end}}]}


def seen(scheduler: str, objects: dict[str, Any]) -> GangObservation:
    arguments = {"scheduler": scheduler, "resource": "nvidia.com/gpu"}
    return probe.functional(RecordedCluster(objects), Scope(arguments=arguments, now=1795255300.0, since=1795255200.0))


def test_members_that_ran_failed_or_were_refused() -> None:
    pods = [
        pod("gang-fit-0", phase="Succeeded", **ended(0, "Completed", '{"node":"gpu001","time":1795255245}')),
        pod("gang-fit-1", phase="Failed", **ended(128, "StartError", "failed to create containerd task", "1970-01-01T00:00:00Z")),
        pod("gang-fit-2", phase="Failed", reason="UnexpectedAdmissionError", message="Pod was rejected: Allocate failed"),
    ]
    ran, broken, refused = seen("volcano", {PODS: pods}).members
    assert (ran.bound, ran.started, ran.ended, ran.exit_code) == (1795255212.0, 1795255215.0, 1795255245.0, 0)
    assert ran.report == {"node": "gpu001", "time": 1795255245}
    assert (broken.exit_code, broken.reason, broken.message) == (128, "StartError", "failed to create containerd task")
    assert (refused.exit_code, refused.reason, refused.message) == (
        None,
        "UnexpectedAdmissionError",
        "Pod was rejected: Allocate failed",
    )


JOB = "/apis/batch.volcano.sh/v1alpha1/namespaces/bringup-check/jobs/gang-fit"


@pytest.mark.parametrize(("phase", "known"), [("Completed", True), ("Failed", True), ("Running", False), ("Pending", False)])
def test_the_group_of_an_ended_volcano_job_is_what_the_job_states(phase: str, known: bool) -> None:
    job = {"metadata": {"name": "gang-fit", "uid": "7"}, "spec": {"minAvailable": 4, "queue": "default"}}
    job["status"] = {"state": {"phase": phase}}
    gang = seen("volcano", {JOB: job, VOLCANO_QUEUES: [volcano("default", {})]})
    assert gang.queue is not None
    assert (gang.group is not None) is known
    if gang.group is not None:
        assert (gang.group.name, gang.group.least, gang.group.phase) == ("gang-fit-7", 4, phase)


def test_a_kai_group_keeps_the_detailed_reasons() -> None:
    condition = {"type": "UnschedulableOnNodePool", "status": "True", "reason": "Unschedulable", "message": "OverLimit: x"}
    group = {
        "metadata": {"name": "pg-gang-fit", "namespace": "bringup-check", "ownerReferences": [{"kind": "Job", "name": "gang-fit"}]},
        "spec": {"minMember": 4, "queue": "default-queue"},
        "status": {"schedulingConditions": [condition | {"reasons": [{"reason": "OverLimit", "message": "x"}]}]},
    }
    gang = seen("kai", {"/apis/scheduling.run.ai/v2alpha2/podgroups": [group]})
    assert gang.group is not None
    assert [(row.reason, row.causes) for row in gang.group.conditions] == [("Unschedulable", ("OverLimit",))]
    assert gang.queue is None


def event(name: str, about: str, kind: str, minute: int, *, warning: bool = True, **more: Any) -> dict[str, Any]:
    row = {"metadata": {"name": name}, "involvedObject": {"kind": kind, "name": about}, "reason": "R", "message": name}
    return row | {"type": "Warning" if warning else "Normal", "lastTimestamp": f"2026-11-21T10:{minute:02d}:00Z", **more}


def test_the_newest_events_of_members_and_group_are_kept() -> None:
    group = {
        "metadata": {"name": "pg-gang-fit", "namespace": "bringup-check", "ownerReferences": [{"kind": "Job", "name": "gang-fit"}]},
        "spec": {"minMember": 4},
    }
    series: dict[str, Any] = {
        "lastTimestamp": None,
        "eventTime": "2026-11-21T10:01:00Z",
        "series": {"lastObservedTime": "2026-11-21T10:09:00Z"},
    }
    events = [
        event("of-a-member", "gang-fit-0", "Pod", 5),
        event("again-and-again", "gang-fit-1", "Pod", 0, **series),
        event("of-the-group", "pg-gang-fit", "PodGroup", 6, warning=False),
        event("of-the-job", "gang-fit", "Job", 7),
        event("normal-of-a-member", "gang-fit-0", "Pod", 8, warning=False),
        event("of-the-other-gang", "gang-oversize-0", "Pod", 8),
        event("of-an-earlier-gang", "gang-fit-0", "Pod", 0, lastTimestamp="2026-11-21T09:59:00Z"),
    ]
    gang = seen("kai", {"/apis/scheduling.run.ai/v2alpha2/podgroups": [group], EVENTS: events})
    assert [(row.about, row.message, row.warning) for row in gang.events] == [
        ("Pod gang-fit-1", "again-and-again", True),
        ("Job gang-fit", "of-the-job", True),
        ("PodGroup pg-gang-fit", "of-the-group", False),
        ("Pod gang-fit-0", "of-a-member", True),
    ]
