"""Runs the rounds of a localisation in Kubernetes: an indexed Job for each pair of nodes, an MPIJob for each group.

Everything that a round creates carries one label, by which it is removed: after each round, at the end, and at the start of a task
whose earlier attempt was killed.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.kube.api import CONNECTIONS, ApiError
from steps.contract.host_ranges import fold
from steps.contract.objects.checks import CHECK_LABEL, CHECK_NAMESPACE, POD_GROUP, CheckPod
from steps.errors import Temporary
from steps.localise.contract import MOST_MEETINGS, FabricTest, Outcome
from steps.runtime import check_manifests, target
from steps.runtime.context import Context
from steps.stages.shared import probe_checks
from steps.stages.validation import gate_fabric, reader_nccl
from steps.stages.validation.contract import LocaliseExpectation
from steps.stages.validation.gate_fabric import FabricReading
from steps.stages.validation.probe import LOG_LINES

_KINDS = (
    f"/apis/batch/v1/namespaces/{CHECK_NAMESPACE}/jobs",
    f"/apis/kubeflow.org/v2beta1/namespaces/{CHECK_NAMESPACE}/mpijobs",
)


class FabricTemplates(Struct, frozen=True, kw_only=True):
    """Templates of a localisation's objects.

    `common` is created once. `pair` is the Job in which two nodes or more meet; its markers are replaced: `@name`, `@count`,
    `@count_text`, `@seconds`, `@nodes` (a list), and `@rails` (numbers as text, empty for all).
    """

    check: str
    common: tuple[dict[str, Any], ...]
    pair: dict[str, Any]


class _PlannedJob(Struct, frozen=True):
    """An object to create, with the tests that it serves; several tests of rails between the same nodes share one.

    A test of a group has indexed Jobs in which each node meets others, and a `collective`, the MPIJob over all. Each of those Jobs
    has a part of a large group: its pods carry the names of all its nodes.
    """

    name: str
    tests: tuple[FabricTest, ...]
    collective: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes of the job."""
        return self.tests[0].nodes


class FabricJobs:
    """A runner of rounds in the target cluster.

    `rails` has the least bandwidth of each rail of each node over all rounds, `problem` why a test gave no result.
    """

    def __init__(self, context: Context, templates: FabricTemplates, group: dict[str, Any], want: LocaliseExpectation) -> None:
        self._context = context
        self._templates = templates
        self._group = group
        self._want = want
        self._count = 0
        self.rails: dict[str, tuple[float | None, ...]] = {}
        self.problem = ""

    def prepare(self) -> None:
        """Remove leftovers of an earlier attempt and create the common objects. Raises Temporary if leftovers remain."""
        if remaining := self.clean():
            raise Temporary(
                f"left of an earlier attempt: {remaining}", hint="see what holds these pods: a finalizer, or a lost node"
            )
        for manifest in self._templates.common:
            self._context.kube.apply(manifest)

    def run(self, tests: Sequence[FabricTest]) -> Sequence[Outcome]:
        """Run tests at the same time, in waves if jobs share a node, and return an outcome for each."""
        outcomes: dict[str, list[Outcome]] = {}
        for wave in _waves(self._planned(tests)):
            readings = self._run_wave(wave)
            self.rails = gate_fabric.lowest(self.rails, readings)
            self.problem = next((reading.problem for reading in readings if reading.problem), self.problem)
            for reading in readings:
                outcomes.setdefault(reading.outcome.test, []).append(reading.outcome)
        return [gate_fabric.worst(outcomes[test.id]) for test in tests]

    def clean(self) -> str:
        """Delete every object of the localisation and return the pods that are still there after a while."""
        label, kube = f"{CHECK_LABEL}={self._templates.check}", self._context.kube
        for path in _KINDS:
            try:
                kube.delete_all(path, label)
            except ApiError as error:
                if error.status != 404:  # MPIJobs are not served: none was created
                    raise
        pods, clock = f"/api/v1/namespaces/{CHECK_NAMESPACE}/pods", self._context.clock
        deadline = clock.now() + timeouts.JOB_DELETE
        while names := [pod.metadata.name for pod in kube.list(pods, target.IdentifiedObject, labels=label) or ()]:
            if clock.now() >= deadline:
                return fold(names[:5])
            kube.delete_all(pods, label)
            clock.pause(timeouts.POLL_FIRST, deadline)
        return ""

    def _planned(self, tests: Iterable[FabricTest]) -> Iterator[_PlannedJob]:
        jobs: dict[tuple[object, ...], list[FabricTest]] = {}
        for test in tests:
            key = (frozenset(test.nodes), "rail") if test.kind == "rail" else (test.id,)
            jobs.setdefault(key, []).append(test)
        for members in jobs.values():
            if members[0].kind != "group":
                yield self._named(tuple(members))
                continue
            yield from (self._named((part,)) for part in parts(members[0]))
            yield self._named(tuple(members), collective=True)

    def _named(self, tests: tuple[FabricTest, ...], *, collective: bool = False) -> _PlannedJob:
        self._count += 1
        return _PlannedJob(f"{self._templates.check}-{self._count}", tests, collective)

    def _run_wave(self, wave: Sequence[_PlannedJob]) -> list[FabricReading]:
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="fabric-jobs") as creators:
            for _ in creators.map(self._create, wave):  # raises the first error, and begins no further job then
                pass
        pods = self._ended_pods(wave)
        by_job: dict[str, list[CheckPod]] = {}
        for pod in pods:
            by_job.setdefault(_job_of(pod.name, self._templates.check), []).append(pod)
        readings = [reading for job in wave for reading in self._read(job, by_job.get(job.name, []))]
        bad = [reading.outcome.test for reading in readings if reading.outcome.result == "fail"]
        self._context.say(f"{len(readings)} tests on {sum(len(job.nodes) for job in wave)} nodes: {len(bad)} below the floor")
        self.clean()
        return readings

    def _create(self, job: _PlannedJob) -> None:
        template = self._group if job.collective else self._templates.pair
        others = check_manifests.other_nodes(self._context.kube, job.nodes)
        self._context.kube.create(check_manifests.fill(template, _markers(job), others))

    def _ended_pods(self, wave: Sequence[_PlannedJob]) -> tuple[CheckPod, ...]:
        """Return the pods of all jobs once those that report have ended, or the time of a round is up."""
        clock = self._context.clock
        longest = max(_seconds(job) for job in wave)
        deadline, pause = clock.now() + longest, timeouts.POLL_FIRST
        wanted = sum(1 if job.collective else len(job.nodes) for job in wave)
        while True:
            pods = probe_checks.read(self._context.kube, self._templates.check)
            if sum(bool(pod.report) or pod.ended for pod in pods) >= wanted or clock.now() >= deadline:
                return pods
            clock.pause(pause, deadline)
            pause = min(pause * timeouts.POLL_FACTOR, timeouts.POLL_MAX)

    def _read(self, job: _PlannedJob, own: Sequence[CheckPod]) -> Iterator[FabricReading]:
        want = self._want
        for test in job.tests:
            if not job.collective:
                yield gate_fabric.read_pair(test, own, floor=want.floor, rails=want.rails)
                continue
            launcher = next((pod for pod in own if pod.name.startswith(f"{job.name}-launcher") and pod.report), None)
            text = self._context.kube.log(CHECK_NAMESPACE, launcher.name, tail=LOG_LINES) if launcher else ""
            workers = [pod for pod in own if pod.name.startswith(f"{job.name}-worker-")]
            ranks = len(test.nodes) * want.gpus
            whole = msgspec.structs.replace(want.want, ranks=ranks, hosts=len(test.nodes))
            yield gate_fabric.read_group(test, reader_nccl.read(text) if text else None, workers, want=whole)


def parts(test: FabricTest) -> Iterator[FabricTest]:
    """Yield a test of a group in parts of at most `LISTED` nodes, each with nodes of all leaves, because a group follows these."""
    number = math.ceil(len(test.nodes) / check_manifests.LISTED)
    for first in range(number):
        yield msgspec.structs.replace(test, nodes=test.nodes[first::number])


def _job_of(pod: str, check: str) -> str:
    """Return the name of a pod's Job, `CHECK-NUMBER`, with which the names of its pods begin."""
    return f"{check}-{pod.removeprefix(f'{check}-').partition('-')[0]}"


def group_template(objects: Iterable[dict[str, Any]], check: str) -> dict[str, Any]:
    """Return the template of an MPIJob over a group, made from the one over all nodes: one run, at the largest size alone.

    No programs follow it. Volcano does not place it, because its PodGroup is that of all nodes: Kubernetes' own scheduler does.
    KAI places it where it is planned, because its pod-grouper makes a group for each job.
    """
    job = next(manifest for manifest in objects if manifest["kind"] == "MPIJob")
    old, name = str(job["metadata"]["labels"][CHECK_LABEL]), str(job["metadata"]["name"])
    renamed = check_manifests.fill(job, {old: check, name: "@name"})
    launcher = renamed["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    values = {entry["name"]: entry.get("value") for entry in launcher["env"]}
    fixed = {"RUNS": "1", "FIRST": values.get("LAST"), "PROGRAMS": ""}
    launcher["env"] = [{**entry, "value": fixed[entry["name"]]} if entry["name"] in fixed else entry for entry in launcher["env"]]
    workers = renamed["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    if workers["metadata"].get("annotations", {}).pop(POD_GROUP, ""):
        workers["spec"].pop("schedulerName", None)
    return dict(renamed)


def _markers(job: _PlannedJob) -> dict[str, Any]:
    rails = " ".join(str(test.rail) for test in job.tests if test.rail is not None)
    own = {"@name": job.name, "@seconds": int(_seconds(job)), "@rails": rails}
    return check_manifests.node_markers(job.nodes) | own


def _seconds(job: _PlannedJob) -> float:
    """Return the limit for one job in seconds: in a larger group more nodes meet one after the other."""
    return timeouts.FABRIC_ROUND + timeouts.FABRIC_STEP * min(len(job.nodes), MOST_MEETINGS)


def _waves(jobs: Iterable[_PlannedJob]) -> list[list[_PlannedJob]]:
    """Return the jobs in as few waves as fit greedily, so that no two jobs of a wave need the devices of one node."""
    waves: list[tuple[set[str], list[_PlannedJob]]] = []
    for job in jobs:
        busy, members = next((wave for wave in waves if wave[0].isdisjoint(job.nodes)), (set[str](), list[_PlannedJob]()))
        if not members:
            waves.append((busy, members))
        busy.update(job.nodes)
        members.append(job)
    return [members for _, members in waves]
