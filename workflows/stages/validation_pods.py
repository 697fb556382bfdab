"""Pods of stage validation: one on each node with all its GPUs, and the MPIJob over all nodes."""

from __future__ import annotations

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.derived import GPU
from workflows.spec.fields import StageName
from workflows.stages import objects
from workflows.stages.site import Site
from workflows.stages.stage import Object

STAGE: StageName = "validation"
JOB = "nccl-all-reduce"
INTER_CHECK = "nccl-inter"
_WORKERS = {"training.kubeflow.org/job-name": JOB, "training.kubeflow.org/job-role": "worker"}


def gpus(site: Site) -> Object:
    """Return the usual number of GPUs a node, and the machines that have another number."""
    usual = site.spec.accelerator.per_node if site.spec.accelerator else 0
    others = {machine.name: machine.gpus for machine in site.machines if machine.gpu and machine.gpus != usual}
    return {"gpus": usual, **({"others": others} if others else {})}


def sizes(site: Site, runs: int, seconds: int) -> list[Object]:
    """Return the environment of the NCCL scripts: message sizes, repetitions, and seconds a run may take."""
    message_sizes = site.spec.validation.nccl.sizes
    settings = {
        "FIRST": message_sizes[0],
        "LAST": message_sizes[-1],
        "RUNS": str(runs),
        "SECONDS_A_RUN": str(max((seconds - 300) // runs, 60)),
    }
    return [objects.node_name(), *({"name": name, "value": value} for name, value in settings.items())]


def slots(site: Site) -> int:
    """Return the number of ranks a node: that of the machine with the fewest GPUs."""
    return min(machine.gpus for machine in site.machines if machine.gpu)


def mpi_job(site: Site, seconds: int) -> Object:
    """Return the MPIJob with workers on exactly the nodes under test.

    The launcher starts once all workers are ready, and counts its ranks in its host file.
    """
    spec, labels = site.spec, objects.check_labels(STAGE, INTER_CHECK)
    env = [*sizes(site, spec.validation.runs, seconds), {"name": "PER_NODE", "value": str(slots(site))}]
    launch = objects.container(spec.validation.image, objects.script("nccl_inter.sh"), name="launcher", env=env)
    worker = {"name": "worker", "image": spec.validation.image, "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    pod = gpu_pod(site, worker, INTER_CHECK, fabric=True)
    networks = {"k8s.v1.cni.cncf.io/networks": ",".join(["default/fabric"] * _attachments(spec))}
    meta: Object = {"labels": labels, **({"annotations": networks} if spec.fabric.has_network else {})}
    workers = {
        **pod,
        # two on one node would measure NVLink instead of the fabric
        "affinity": objects.one_a_node(_WORKERS, objects.HOSTNAME, objects.NODES),
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "automountServiceAccountToken": False,
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {**objects.check_metadata(STAGE, INTER_CHECK), "name": JOB},
        "spec": {
            "slotsPerWorker": slots(site),
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0, "activeDeadlineSeconds": seconds - 30},
            "mpiReplicaSpecs": {
                "Launcher": {
                    "replicas": 1,
                    "restartPolicy": "Never",
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [launch], "automountServiceAccountToken": False},
                    },
                },
                "Worker": {
                    "replicas": objects.COUNT,
                    "restartPolicy": "Never",
                    "template": {"metadata": meta, "spec": workers},
                },
            },
        },
    }


def _attachments(spec: ClusterSpec) -> int:
    """Return how often a pod attaches the network: once a NIC if each network carries one device, else once."""
    return spec.fabric.nics_per_node if spec.fabric.mode in ("sriov", "host_device") else 1


def claims(spec: ClusterSpec, check: str) -> list[Object]:
    """Return the template of a claim for all GPUs of a node, in the GPU Operator's DRA mode; empty otherwise."""
    dra = spec.accelerator is not None and spec.accelerator.operator_mode == "gpu_cluster"
    return [objects.gpu_claims(STAGE, check, every=True)] if dra else []


def gpu_pod(site: Site, container: Object, check: str, *, fabric: bool = False) -> Object:
    """Return a pod whose one container has all GPUs of its node, and with `fabric` the RDMA devices.

    The pod requests GPUs if they are whole, free, and equally many on every node. If sharing or Slurm's node pods have taken them,
    or machines differ, it gets them by the runtime class: nothing else runs on the GPUs during validation.
    """
    spec, counts = site.spec, gpus(site)
    limits = _fabric_limits(spec) if fabric else {}
    # RDMA registers locked memory: without IPC_LOCK ibv_reg_mr fails
    secured = {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}} if fabric and spec.fabric.kind != "none" else {}
    if claims(spec, check):
        return objects.claiming(check, {**container, **secured, **({"resources": {"limits": limits}} if limits else {})})
    # one Job has one request: machines with another number of GPUs would not fit it
    if spec.sharing.mode == "none" and spec.slurm.kind == "none" and "others" not in counts:
        whole = {"limits": {**limits, GPU: counts["gpus"]}}
        return {"containers": [{**container, **secured, "resources": whole}]}
    opened = {
        **container,
        "env": [*container.get("env", ()), {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "securityContext": {"privileged": True},
        **({"resources": {"limits": limits}} if limits else {}),
    }
    return {"runtimeClassName": "nvidia", "containers": [opened]}


def _fabric_limits(spec: ClusterSpec) -> dict[str, int]:
    """Return the RDMA devices that a pod requests; a privileged pod reaches whole devices that Slurm's node pods hold without a
    request.
    """
    fabric = spec.fabric
    taken = spec.slurm.kind != "none" and fabric.mode in ("sriov", "host_device")
    return {fabric.resource_key: _attachments(spec)} if fabric.kind != "none" and not taken else {}
