"""Stage validation: a simulated MPI operator (https://github.com/kubeflow/mpi-operator).

The programs of checks are in `validation_node_programs` and `validation_fabric_programs`.
"""

from __future__ import annotations

import functools

from workflows.rehearsal.simulator.api.api_kinds import (
    CRDS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    Obj,
    custom,
    definitions,
    has_condition,
    ref,
)
from workflows.rehearsal.simulator.charts.operators import ensure_deployment, has_ready_pod
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, Exit
from workflows.rehearsal.simulator.stages.validation import (
    validation_fabric_programs,
    validation_node_programs,
    validation_workload_programs,
)
from workflows.rehearsal.simulator.stages.validation.validation_fabric_programs import INDEX, JOB_NAME, ROLE, workers
from workflows.rehearsal.simulator.world import Changes, World

MPI_JOBS = custom("kubeflow.org", "MPIJob")
NAMESPACE, OPERATOR = "mpi-operator", "mpi-operator"


@simulated_pods.pod_program("bringup/install", OPERATOR)
def install(world: World, pod: Obj, _node: str) -> Behaviour:
    """Play the pod that runs `kubectl apply -f URL` for mpi-operator; it fails if a fault makes the URL unreachable."""
    url = next((argument for argument in pod["spec"]["containers"][0].get("args") or () if "://" in argument), "")
    if world.fault("mpi_manifest_unreachable"):
        message = f'error: unable to read URL "{url}": dial tcp: lookup raw.githubusercontent.com on 10.43.0.10:53: no such host'
        return Exit(code=1, log=f"{message}\n", message=message)
    return Exit(log="customresourcedefinition serverside-applied\n", effect=functools.partial(_apply, world, url))


def _apply(world: World, url: str) -> None:
    """Create namespace, CRD and Deployment of mpi-operator. The image has the release in `url`, as in the manifest of its tag."""
    tag = url.partition("/mpi-operator/")[2].partition("/")[0].removeprefix("v")
    image = "master" if world.fault("mpi_operator_floating_image") else tag
    for definition in definitions("kubeflow.org"):
        world.ensure(CRDS, definition)
    world.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    ensure_deployment(world, NAMESPACE, OPERATOR, f"mpioperator/mpi-operator:{image}")


class MpiOperator:
    """Simulated mpi-operator. The scheduler that a pod template names assigns the pods."""

    name = "mpi_operator"
    kinds = (MPI_JOBS, JOBS, PODS, DEPLOYMENTS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Take the next step of each unfinished MPIJob: workers, launcher, status, clean-up."""
        if not changed.concern(*self.kinds) or not world.served(MPI_JOBS) or not has_ready_pod(world, NAMESPACE, OPERATOR):
            return
        for job in world.objects(MPI_JOBS):
            over = has_condition(job, "Succeeded") or has_condition(job, "Failed")
            if not over and "deletionTimestamp" not in job["metadata"]:
                _step(world, job)


def _step(world: World, job: Obj) -> None:
    at = ref(job)
    specs = job["spec"]["mpiReplicaSpecs"]
    wanted = int(specs["Worker"].get("replicas", 1))
    for index in range(wanted):
        _worker(world, job, index)
    own = workers(world, at.namespace, at.name)
    ready = len(own) == wanted and all(simulated_pods.ready(pod) for pod in own)
    launcher = world.find(JOBS, f"{at.name}-launcher", at.namespace)
    if launcher is None and (ready or job["spec"].get("launcherCreationPolicy") != "WaitForWorkersReady"):
        _launcher(world, job)
    conditions = _operator_conditions(world, job, launcher, running=ready and launcher is not None)
    active = sum(simulated_pods.phase(pod) == "Running" for pod in own)
    status = {"conditions": conditions, "replicaStatuses": {"Worker": {"active": active}}}
    world.patch(MPI_JOBS, job, {"status": status}, status=True)
    if _ended(launcher) and job["spec"].get("runPolicy", {}).get("cleanPodPolicy", "Running") != "None":
        for pod in own:
            world.delete_soon(PODS, pod)


def _worker(world: World, job: Obj, index: int) -> None:
    at = ref(job)
    name = f"{at.name}-worker-{index}"
    if world.find(PODS, name, at.namespace) is not None:
        return
    replica = job["spec"]["mpiReplicaSpecs"]["Worker"]
    labels = {JOB_NAME: at.name, ROLE: "worker", INDEX: str(index)}
    pod = simulated_pods.from_template(replica["template"], name, MPI_JOBS, job, labels=labels)
    pod["spec"] |= {"hostname": name, "restartPolicy": replica.get("restartPolicy", "Never")}
    world.create_soon(PODS, pod)


def _launcher(world: World, job: Obj) -> None:
    at = ref(job)
    replica = job["spec"]["mpiReplicaSpecs"]["Launcher"]
    template = replica["template"]
    labels = (template.get("metadata", {}).get("labels") or {}) | {JOB_NAME: at.name, ROLE: "launcher"}
    policy = job["spec"].get("runPolicy", {})
    pod = template["spec"] | {"restartPolicy": replica.get("restartPolicy", "Never"), "hostname": f"{at.name}-launcher"}
    spec = {"backoffLimit": policy.get("backoffLimit", 6), "template": {"metadata": {"labels": labels}, "spec": pod}}
    if "activeDeadlineSeconds" in policy:
        spec["activeDeadlineSeconds"] = policy["activeDeadlineSeconds"]
    meta = {"name": f"{at.name}-launcher", "namespace": at.namespace, "ownerReferences": [MPI_JOBS.owner(job)]}
    world.create(JOBS, {"metadata": meta, "spec": spec})


def _ended(launcher: Obj | None) -> str:
    """Return `Complete` or `Failed` if the launcher Job has ended so, else an empty text."""
    return next((kind for kind in ("Complete", "Failed") if launcher and has_condition(launcher, kind)), "")


def _operator_conditions(world: World, job: Obj, launcher: Obj | None, *, running: bool) -> list[Obj]:
    """Return the status conditions of an MPIJob, in mpi-operator's words."""
    at = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    kinds = [("Created", f"MPIJob {at} is created.")]
    if running:
        kinds.append(("Running", f"MPIJob {at} is running."))
    match _ended(launcher):
        case "Complete":
            kinds.append(("Succeeded", f"MPIJob {at} successfully completed."))
        case "Failed":
            kinds.append(("Failed", "Job has reached the specified backoff limit"))
    return world.conditions(job, *((kind, "True", f"MPIJob{kind}", message) for kind, message in kinds))


PROGRAMS = (validation_node_programs, validation_fabric_programs, validation_workload_programs)
"""Modules that register the programs of the stage's checks when they are imported."""

ROLES = (MpiOperator,)
