"""The MPI operator: its manifest, and MPIJobs: all workers first, then the launcher (https://github.com/kubeflow/mpi-operator)."""

from __future__ import annotations

import functools

from workflows.rehearsal.simulator import pod_objects
from workflows.rehearsal.simulator.api_kinds import CRDS, DEPLOYMENTS, JOBS, NAMESPACES, PODS, Obj, Ref, custom, definitions, ref
from workflows.rehearsal.simulator.operators import has_ready_pod
from workflows.rehearsal.simulator.pod_programs import Behaviour, Exit
from workflows.rehearsal.simulator.pod_programs import pod_program as program
from workflows.rehearsal.simulator.role import Changes
from workflows.rehearsal.simulator.world import World

MPI_JOBS = custom("kubeflow.org", "MPIJob")
NAMESPACE, OPERATOR = "mpi-operator", "mpi-operator"
JOB_NAME, ROLE = "training.kubeflow.org/job-name", "training.kubeflow.org/job-role"
INDEX = "training.kubeflow.org/replica-index"


@program("bringup/install", OPERATOR)
def install(world: World, pod: Obj, _node: str) -> Behaviour:
    """Play `kubectl apply -f URL`, which fails as kubectl does if the manifest cannot be fetched."""
    url = next((argument for argument in pod["spec"]["containers"][0].get("args") or () if "://" in argument), "")
    if world.fault("mpi_manifest_unreachable"):
        message = f'error: unable to read URL "{url}": dial tcp: lookup raw.githubusercontent.com on 10.43.0.10:53: no such host'
        return Exit(code=1, log=f"{message}\n", message=message)
    return Exit(log="customresourcedefinition serverside-applied\n", effect=functools.partial(_apply, world, url))


def _apply(world: World, url: str) -> None:
    """Create namespace, CRD and Deployment; the tag's manifest pins the image of its release."""
    tag = url.partition("/mpi-operator/")[2].partition("/")[0].removeprefix("v")
    image = "master" if world.fault("mpi_operator_floating_image") else tag
    for definition in definitions("kubeflow.org"):
        world.ensure(CRDS, definition)
    world.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    labels = {"app": OPERATOR}
    container = {"name": OPERATOR, "image": f"mpioperator/mpi-operator:{image}"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    world.ensure(DEPLOYMENTS, {"metadata": {"name": OPERATOR, "namespace": NAMESPACE, "labels": labels}, "spec": spec})


class MpiOperator:
    """The role that plays mpi-operator. Pods are bound by the scheduler that their template names."""

    name = "mpi_operator"
    kinds = (MPI_JOBS, JOBS, PODS, DEPLOYMENTS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Take each unfinished MPIJob one step further."""
        looked = changed.everything or any(changed.refs(kind) for kind in self.kinds)
        if not looked or not world.served(MPI_JOBS) or not has_ready_pod(world, NAMESPACE, OPERATOR):
            return
        for job in world.objects(MPI_JOBS):
            if "deletionTimestamp" not in job["metadata"] and not _is_finished(job):
                _step(world, job)


def workers(world: World, namespace: str, job: str) -> list[Obj]:
    """Return the workers of an MPIJob by index."""
    pods = world.select(PODS, namespace, {JOB_NAME: job, ROLE: "worker"})
    return sorted(pods, key=lambda pod: int(pod["metadata"]["labels"][INDEX]))


def _is_finished(job: Obj) -> bool:
    return any(entry["type"] in ("Succeeded", "Failed") and entry["status"] == "True" for entry in _conditions(job))


def _conditions(job: Obj) -> list[Obj]:
    return list(job.get("status", {}).get("conditions") or ())


def _step(world: World, job: Obj) -> None:
    at = ref(job)
    specs = job["spec"]["mpiReplicaSpecs"]
    wanted = int(specs["Worker"].get("replicas", 1))
    for index in range(wanted):
        _worker(world, job, index)
    own = workers(world, at.namespace, at.name)
    ready = len(own) == wanted and all(pod_objects.ready(pod) for pod in own)
    launcher = world.find(JOBS, f"{at.name}-launcher", at.namespace)
    if launcher is None and (ready or job["spec"].get("launcherCreationPolicy") != "WaitForWorkersReady"):
        _launcher(world, job)
    conditions = _operator_conditions(world, job, launcher, running=ready and launcher is not None)
    active = sum(pod_objects.phase(pod) == "Running" for pod in own)
    world.patch(
        MPI_JOBS, job, {"status": {"conditions": conditions, "replicaStatuses": {"Worker": {"active": active}}}}, status=True
    )
    if launcher is not None and _ended(launcher) and job["spec"].get("runPolicy", {}).get("cleanPodPolicy", "Running") != "None":
        for pod in own:
            world.delete_soon(PODS, Ref(at.namespace, pod["metadata"]["name"]))


def _worker(world: World, job: Obj, index: int) -> None:
    at = ref(job)
    name = f"{at.name}-worker-{index}"
    if world.find(PODS, name, at.namespace) is not None:
        return
    replica = job["spec"]["mpiReplicaSpecs"]["Worker"]
    labels = {JOB_NAME: at.name, ROLE: "worker", INDEX: str(index)}
    pod = pod_objects.from_template(replica["template"], name, MPI_JOBS, job, labels=labels)
    pod["spec"] |= {"hostname": name, "restartPolicy": replica.get("restartPolicy", "Never")}
    world.create_soon(PODS, pod)


def _launcher(world: World, job: Obj) -> None:
    at = ref(job)
    replica = job["spec"]["mpiReplicaSpecs"]["Launcher"]
    template = replica["template"]
    labels = (template.get("metadata", {}).get("labels") or {}) | {JOB_NAME: at.name, ROLE: "launcher"}
    policy = job["spec"].get("runPolicy", {})
    spec = {
        "backoffLimit": policy.get("backoffLimit", 6),
        "template": {
            "metadata": {"labels": labels},
            "spec": template["spec"] | {"restartPolicy": replica.get("restartPolicy", "Never"), "hostname": f"{at.name}-launcher"},
        },
    }
    if "activeDeadlineSeconds" in policy:
        spec["activeDeadlineSeconds"] = policy["activeDeadlineSeconds"]
    meta = {"name": f"{at.name}-launcher", "namespace": at.namespace, "ownerReferences": [MPI_JOBS.owner(job)]}
    world.create(JOBS, {"metadata": meta, "spec": spec})


def _ended(job: Obj) -> str:
    """Return `Complete`, `Failed`, or an empty string."""
    conditions = job.get("status", {}).get("conditions") or ()
    return next(
        (entry["type"] for entry in conditions if entry["type"] in ("Complete", "Failed") and entry["status"] == "True"), ""
    )


def _operator_conditions(world: World, job: Obj, launcher: Obj | None, *, running: bool) -> list[Obj]:
    """Return the MPIJob's conditions in the operator's words."""
    at = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    kinds = [("Created", "MPIJobCreated", f"MPIJob {at} is created.")]
    if running:
        kinds.append(("Running", "MPIJobRunning", f"MPIJob {at} is running."))
    match _ended(launcher) if launcher else "":
        case "Complete":
            kinds.append(("Succeeded", "MPIJobSucceeded", f"MPIJob {at} successfully completed."))
        case "Failed":
            kinds.append(("Failed", "MPIJobFailed", "Job has reached the specified backoff limit"))
    holder = job
    for kind, reason, message in kinds:
        holder = {"status": {"conditions": world.condition(holder, kind, "True", reason, message)}}
    return _conditions(holder)
