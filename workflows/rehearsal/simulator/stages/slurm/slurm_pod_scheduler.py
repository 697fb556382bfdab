"""Stage slurm: SUNK's pod scheduler, which places pods of Kubernetes on nodes of Slurm, and the pods of its check.

Rules: https://github.com/coreweave/sunk-anywhere, examples/04-validate-pod-scheduler.yaml.
"""

from __future__ import annotations

from collections.abc import Sequence

from workflows.rehearsal.simulator.api.api_kinds import DEPLOYMENTS, NODES, PODS, Obj, annotations_of
from workflows.rehearsal.simulator.charts.chart_installers import ChartRelease, workload_spec
from workflows.rehearsal.simulator.charts.operators import has_ready_pod
from workflows.rehearsal.simulator.controllers.scheduler import admits
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, Exit, check
from workflows.rehearsal.simulator.stages.gang import gang_placement
from workflows.rehearsal.simulator.world import World

NAME = "slurm-scheduler"
KNOWN_AS = "simulated/scheduler-name"
"""Annotation of the Deployment with the name by which pods ask for this scheduler."""
KILL_WAIT = 30
TOO_LONG = "termination grace period must be less than Slurm KillWait - 5s"


def install_scheduler(release: ChartRelease, pod: Obj) -> None:
    """Install the scheduler if the values of chart slurm turn it on, as they do by default."""
    if not release.value("scheduler.enabled", True):
        return
    name = release.value("scheduler.name", f"{release.namespace}-{release.name}")
    body = {"replicas": 1} | workload_spec(NAME, {"app.kubernetes.io/name": "sunk-scheduler"}, "simulated/scheduler", pod)
    release.put(DEPLOYMENTS, {"metadata": {"name": NAME, "annotations": {KNOWN_AS: name}}, "spec": body})


def schedule_pods(world: World, namespace: str, nodes: Sequence[str]) -> None:
    """Place the waiting pods of a namespace that ask for its scheduler on nodes of Slurm, one after another, or refuse them."""
    deployment = world.find(DEPLOYMENTS, NAME, namespace)
    if deployment is None or not nodes or not has_ready_pod(world, namespace, NAME) or world.fault("sunk_scheduler_stuck"):
        return
    name = annotations_of(deployment).get(KNOWN_AS, "")
    waiting = [pod for pod in world.select(PODS, namespace, {}) if gang_placement.waits_for_scheduler(pod, name)]
    for position, pod in enumerate(sorted(waiting, key=lambda entry: str(entry["metadata"]["name"]))):
        if pod["spec"].get("terminationGracePeriodSeconds", 30) >= KILL_WAIT - 5:
            gang_placement.refuse(world, pod, TOO_LONG)
            continue
        open_nodes = [node for node in nodes if not admits(world.find(NODES, node) or {"metadata": {}, "spec": {}}, pod["spec"])]
        if open_nodes:
            gang_placement.bind(world, pod, open_nodes[position % len(open_nodes)])


@check("slurm-pods")
def scheduled(_world: World, _pod: Obj, node: str) -> Behaviour:
    """Play a pod that Slurm has scheduled."""
    return Exit(message={"node": node}, seconds=30, least=10)


@check("slurm-lock")
def beside(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play a pod that tolerates the lock; with the fault the lock has another key, and the pod is ended."""
    return Exit(code=137, seconds=5) if world.fault("sunk_lock_has_other_key") else Exit(message={"node": node}, seconds=15)
