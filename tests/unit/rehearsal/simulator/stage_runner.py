"""Runs a stage's own tasks against a simulated cluster in this process: what the verbs do, without their processes and records."""

from __future__ import annotations

import contextlib
import importlib
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from steps.clients.kube.client import Kube
from steps.contract.gres_conf import GresConf
from steps.contract.objects import object_files
from steps.contract.objects.object_files import TaskObjects
from steps.contract.objects.pod_script import PodScript
from steps.contract.task import Task, Verb
from steps.contract.verdict import Verdict
from steps.runtime import check_manifests, gating, gres_settlement, job_removal, leaf_annotation, pod_scripts, watching
from steps.runtime.drain_round_trip import DrainPlan, RoundTrip, as_output
from steps.runtime.job_removal import ReplacedJobs
from steps.runtime.leaf_annotation import LeafAnnotation
from steps.stages.shared.kube_reader import Scope
from steps.verbs import job
from tests.unit.rehearsal.simulator.harness import User
from workflows import catalog, spec
from workflows.rehearsal.simulator.control_server import ControlApi, ControlServer
from workflows.stages.stage import Site, Stage, Step

EXAMPLE = Path(__file__).parents[4] / "workflows/examples/h200-16.yaml"
HOSTS: dict[str, dict[str, Any]] = {
    "servers": {"role": "server", "ranges": "cp00"},
    "gpu": {"role": "agent", "ranges": "gpu[000-002]", "gpu": True},
}
HOSTS_ON_LEAVES = {**HOSTS, "gpu": HOSTS["gpu"] | {"topology": {"leaf": "leaf{block:2}"}}}
NODES = ("gpu000", "gpu001", "gpu002")
LEAVES = {"gpu000": "leaf1", "gpu001": "leaf1", "gpu002": "leaf2"}


def stage(name: str, **changes: Any) -> Stage:
    """A stage of the example spec on three GPU nodes, every one of which must pass."""
    written = (
        yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader)
        | {"hosts": HOSTS, "slurm": {"kind": "none"}, "quorum": {"default": "all"}}
        | changes
    )
    cluster = spec.load(yaml.safe_dump(written))
    releases = catalog.resolve(cluster, catalog.load())
    site = Site(spec=cluster, machines=cluster.machines, releases={release.id: release for release in releases})
    made = importlib.import_module(f"workflows.stages.{name}").build(site)
    assert isinstance(made, Stage)
    return made


def run(user: User, made: Stage) -> dict[str, Verdict]:
    """Verdicts by task, in order, up to the first that does not pass. Rounds of a localisation have tests of their own."""
    kube, found = Kube.from_file(user.kubeconfig), dict[str, Verdict]()
    for step in made.steps:
        if step.task.verb is Verb.JUDGE:
            break
        if step.task.verb is Verb.LOCALISE:
            continue
        _make(user, kube, step)
        if step.task.verb is Verb.APPLY:
            continue
        found[step.name] = _wait(user, kube, step.task)
        if not found[step.name].is_pass:
            break
        _clean(user, kube, step.task)
    return found


class DirectTask(NamedTuple):
    """A task that keeps no record of its changes."""

    kube: Kube
    clock: Any
    own_gate: str = "slurm/gres"

    def leaves(self, _select: str) -> dict[str, str]:
        """The leaf switches of HOSTS_ON_LEAVES."""
        return LEAVES

    def did(self, _change: str) -> None:
        """Forget a change."""


def _make(user: User, kube: Kube, step: Step) -> None:
    task = step.task
    for secret in task.arguments.get("secrets", []):
        meta = {"name": secret["name"], "namespace": secret["namespace"]}
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": meta["namespace"]}})
        kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {secret["key"]: "x"}})
    if gres := task.arguments.get("gres_conf"):
        with kubelets(user):
            gres_settlement.settle(DirectTask(kube, VirtualClock(user)), msgspec.convert(gres, GresConf))
    if script := task.arguments.get("pod_script"):
        with kubelets(user):
            pod_scripts.run(DirectTask(kube, VirtualClock(user)), msgspec.convert(script, PodScript))
    if jobs := task.arguments.get("replaced_jobs"):
        job_removal.remove(DirectTask(kube, VirtualClock(user)), msgspec.convert(jobs, ReplacedJobs))
    if annotation := task.arguments.get("leaf_annotation"):
        leaf_annotation.write(DirectTask(kube, VirtualClock(user)), msgspec.convert(annotation, LeafAnnotation), LEAVES)
    manifests = list(task.arguments.get("objects", []))
    if file := task.arguments.get("file"):
        manifests += object_files.decode(msgspec.convert(file, TaskObjects), step.files[file["name"]])
    for manifest in check_manifests.on_nodes(manifests, NODES):
        kube.apply(manifest)
    labels = task.arguments.get("node_labels") or {}
    for name in NODES if labels else ():
        kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}, force=True)
    user.simulator.settle()


def _wait(user: User, kube: Kube, task: Task) -> Verdict:
    gate, probe = gating.find(task.arguments["gate"]), gating.probe(task.arguments["gate"])
    want, since = gate.expect(task.expectations, NODES, dict.fromkeys(NODES, "gpu"), LEAVES), user.world.now

    arguments = task.arguments | (_output(user, kube, task) if {"command", "round_trip"} & task.arguments.keys() else {})

    def look(now: float) -> tuple[Any, Verdict]:
        seen = probe(kube, Scope(nodes=NODES, arguments=arguments, now=now, since=since))
        return seen, gate.decide(seen, want)

    stable = float(task.arguments.get("stable_seconds", 0))
    return watching.watch_until_decided(look, VirtualClock(user), task.deadline_seconds, stable).verdict


def _output(user: User, kube: Kube, task: Task) -> dict[str, Any]:
    """Return the output of a check's command in its pod; the emulated API server asks the simulator for it."""
    with kubelets(user):
        if "round_trip" in task.arguments:
            plan = msgspec.convert(task.arguments["round_trip"], DrainPlan)
            trip = RoundTrip(DirectTask(kube, VirtualClock(user)), plan, task.arguments, NODES[-1])
            return {job.OUTPUT: as_output(trip.run())}
        command = msgspec.convert(task.arguments["command"], job.PodCommand)
        return {job.OUTPUT: job.execute(kube, command, task.deadline_seconds)}


@contextlib.contextmanager
def kubelets(user: User) -> Iterator[None]:
    """Let the emulated API server reach simulated kubelets, which run commands in pods."""
    control = ControlServer(ControlApi(user.simulator), token := secrets.token_hex(8))
    threading.Thread(target=control.serve_forever, daemon=True).start()
    try:
        assert user.world.api.offer_kubelet(control.url, token)
        yield
    finally:
        control.shutdown()
        control.server_close()


class VirtualClock:
    """The simulator's clock without its server: a pause is lived through at once."""

    def __init__(self, user: User) -> None:
        self._simulator = user.simulator

    def now(self) -> float:
        return self._simulator.world.now

    def pause(self, seconds: float, deadline: float) -> None:
        self._simulator.advance(seconds, deadline)


def _clean(user: User, kube: Kube, task: Task) -> None:
    for manifest in task.arguments.get("objects", ()) if task.verb is Verb.JOB else ():
        if manifest["kind"] != "Namespace":
            kube.delete(kube.path(manifest))
    user.simulator.advance(30)
