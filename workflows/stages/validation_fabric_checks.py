"""Stage validation: checks across nodes: NCCL over all of them, and rounds of tests that localise a fault of the fabric."""

from __future__ import annotations

from dataclasses import replace

from steps.contract.objects.checks import POD_GROUP
from steps.contract.task import Verb
from steps.localise.contract import MOST_MEETINGS
from workflows.spec import floor_table
from workflows.spec.acceptance.acceptance_levels import LEVELS, QUICK
from workflows.spec.cluster_spec import ClusterSpec, collective_floor, has_gpu_cluster, ib_write_bw_floor
from workflows.stages import manifest_objects, rights, validation_tasks
from workflows.stages.stage import Object, Rule, Site, Step, task
from workflows.stages.validation_tasks import STAGE, CheckMaker

JOB = "nccl-all-reduce"
INTER_CHECK, FUNCTIONAL = "nccl-inter", "validation/functional"
_WORKERS = {"training.kubeflow.org/job-name": JOB, "training.kubeflow.org/job-role": "worker"}

SPREAD_INTER = 0.15
"""Largest accepted difference between repeated runs, as a share of the fastest run; healthy fabrics repeat within a few percent."""


COLLECTIVES = ("all_gather", "alltoall")

LOSS, FIRST_LOSS = 0.2, 0.4
"""Largest accepted loss of all_reduce's bandwidth when the nodes double, as a share; the second from 2 to 4 nodes.

H100 reached 470 GB/s on 2 nodes, 331 to 366 on 4 and 387 on 8 (https://github.com/NVIDIA/nccl-tests/issues/309,
https://github.com/coreweave/nccl-tests): between two nodes NCCL's trees exceed the ports, from 4 on a good fabric is flat.
"""


def checks(site: Site) -> tuple[CheckMaker, ...]:
    """Return the makers of the site's tasks, in running order."""
    return (functional, *((localise,) if site.spec.fabric.kind != "none" else ()))


def _gang_scheduler(site: Site) -> str:
    """Return the gang scheduler that places the workers, `volcano` or `kai`; empty for Kubernetes' own.

    With DRA it is Kubernetes' own, because Volcano places claims of devices only behind a feature gate.
    """
    spec = site.spec
    planned = "gang" in spec.enabled_stages() and spec.scheduler.gang != "none"
    return spec.scheduler.gang if planned and not has_gpu_cluster(spec) else ""


def _pod_group(site: Site) -> list[Object]:
    """Return the PodGroup of the workers for Volcano: all of them start, or none; KAI's pod-grouper makes one by itself."""
    if _gang_scheduler(site) != "volcano":
        return []
    meta = {**manifest_objects.check_metadata(STAGE, INTER_CHECK), "name": JOB}
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": meta}
    return [{**group, "spec": {"minMember": manifest_objects.COUNT, "queue": "default"}}]


def _as_gang(site: Site, template: Object) -> Object:
    """Return the workers' pod template as the gang scheduler places it."""
    meta = template["metadata"]
    match _gang_scheduler(site):
        case "volcano":
            meta = {**meta, "annotations": {**meta.get("annotations", {}), POD_GROUP: JOB}}
            return {"metadata": meta, "spec": {**template["spec"], "schedulerName": "volcano"}}
        case "kai":
            # its pod-grouper counts the launcher only once it is there (pkg/podgrouper of NVIDIA/KAI-Scheduler, mpi-grouper.go)
            meta = {**meta, "labels": {**meta["labels"], "kai.scheduler/queue": "default-queue"}}
            return {"metadata": meta, "spec": {**template["spec"], "schedulerName": "kai-scheduler"}}
    return template


def mpi_job(site: Site, seconds: int) -> Object:
    """Return the MPIJob of the NCCL test over all nodes, with workers on exactly the nodes under test.

    The launcher starts once all workers are ready, and counts the ranks in its host file.
    """
    spec, labels = site.spec, manifest_objects.check_labels(STAGE, INTER_CHECK)
    programs = " ".join(LEVELS[spec.validation.level].programs)
    env = [
        *validation_tasks.sizes(site, spec.validation.runs, seconds, launches=_launches(site)),
        *validation_tasks.adapters(site),
        {"name": "PER_NODE", "value": str(validation_tasks.slots(site))},
        *([{"name": "PROGRAMS", "value": programs}] if programs else []),
    ]
    script = manifest_objects.packed_script("nccl_inter.sh")
    launch = manifest_objects.container(spec.validation.image, script, name="launcher", env=env)
    worker = {"name": "worker", "image": spec.validation.image, "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    pod = manifest_objects.gpu_pod(site, worker, INTER_CHECK, fabric=True)
    meta: Object = {"labels": labels, **validation_tasks.network_annotations(site)}
    workers = {
        **pod,
        # two on one node would measure NVLink instead of the fabric
        "affinity": manifest_objects.one_a_node(_WORKERS, manifest_objects.HOSTNAME, manifest_objects.NODES),
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "automountServiceAccountToken": False,
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {**manifest_objects.check_metadata(STAGE, INTER_CHECK), "name": JOB},
        "spec": {
            "slotsPerWorker": validation_tasks.slots(site),
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
                    "replicas": manifest_objects.COUNT,
                    "restartPolicy": "Never",
                    "template": _as_gang(site, {"metadata": meta, "spec": workers}),
                },
            },
        },
    }


def _launches(site: Site) -> int:
    """Return how many runs of programs the launcher makes, each of which may take until its time-out."""
    runs, programs = site.spec.validation.runs, LEVELS[site.spec.validation.level].programs
    points = max((site.count("gpu") - 1).bit_length() - 1, 0) if "scaling" in programs else 0
    return runs + points + sum(runs if name in COLLECTIVES else 1 for name in programs if name != "scaling")


def _functional_seconds(site: Site) -> int:
    """Return the time limit of the task over all nodes: the spec's, or more where that leaves each run too little."""
    least = validation_tasks.MARGIN_SECONDS + _launches(site) * validation_tasks.FEWEST_SECONDS
    return max(validation_tasks.time_limit(site), least)


def _programs_wanted(site: Site) -> Object:
    """Return the part of the gate's expectation about the programs after all_reduce."""
    spec, programs = site.spec, LEVELS[site.spec.validation.level].programs
    collectives = {
        name: {"share": floor_table.relative(name), **({"floor": floor} if (floor := collective_floor(spec, name)) else {})}
        for name in programs
        if name in COLLECTIVES
    }
    osu = [name for name in programs if name.startswith("osu_")]
    return {
        **({"collectives": collectives} if collectives else {}),
        **({"scaling": {"loss": LOSS, "first_loss": FIRST_LOSS}} if "scaling" in programs else {}),
        **({"osu": osu} if osu else {}),
    }


def functional(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    """Return the task that measures NCCL over all nodes, and the programs of the level after it in the same MPIJob."""
    spec, seconds = site.spec, _functional_seconds(site)
    floor = spec.validation.nccl.inter_node_floor_gb_s
    result = validation_tasks.want(site, floor=floor, spread=SPREAD_INTER, **validation_tasks.over_rdma(site))
    verbs, space = ("get", "create", "delete"), (manifest_objects.CHECK_NAMESPACE,)
    group = _pod_group(site)
    rules = (
        Rule(groups=("kubeflow.org",), resources=("mpijobs",), verbs=verbs, namespaces=space),
        *((Rule(groups=("scheduling.volcano.sh",), resources=("podgroups",), verbs=verbs, namespaces=space),) if group else ()),
    )
    return validation_tasks.check(
        site,
        "functional",
        FUNCTIONAL,
        INTER_CHECK,
        [*group, mpi_job(site, seconds)],
        after=after,
        passed=passed,
        seconds=seconds,
        expectations={"gpus": validation_tasks.slots(site), "want": result, **_programs_wanted(site)},
        rules=rules,
        least=2,
    )


# ---- localisation -------------------------------------------------------------------------------------------------------------

FABRIC_CHECK, LOCALISE = "fabric", "validation/localise"
LOCALISE_SECONDS = 7200
"""Time limit of a localisation: four rounds of pairs take some 12 minutes, repeats under noise more."""

LOCALISE_NOISE, LOCALISE_ROUNDS = 0.005, 24
"""Expected share of tests with the wrong result on an idle fabric, whose figures repeat within a percent; and the rounds after
which a localisation ends undecided, where fabrics of 232 nodes with several faults need about ten.
"""

VIRTUAL_FUNCTION = "101e"
"""PCI device id of a ConnectX-6 or -7 virtual function, which pods get with SR-IOV (https://pci-ids.ucw.cz/read/PC/15b3/101e)."""

_LINK = {"infiniband": "InfiniBand", "roce": "Ethernet"}


def localise(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    """Return the task that runs rounds of tests between nodes until the part at fault is named, or every node is cleared.

    Groups of nodes run the MPIJob of the task before it, NCCL over all nodes. At level quick it runs only if that did not pass.
    """
    spec, name = site.spec, site.named("localise")
    templates = {"check": FABRIC_CHECK, "common": _fabric_common(spec), "pair": _pair_job(site)}
    arguments: Object = {"gate": LOCALISE, "templates": templates, "select": site.gpu_select, "after": list(passed)}
    arguments["group"] = after[0]
    arguments |= {"unless": after[0]} if spec.validation.level == QUICK else {}
    arguments["policy"] = {"noise": LOCALISE_NOISE, "most_rounds": LOCALISE_ROUNDS}
    result = validation_tasks.want(site, floor=spec.validation.nccl.inter_node_floor_gb_s, spread=SPREAD_INTER) | {"runs": 1}
    expectations = {
        "floor": ib_write_bw_floor(spec) or 0.0,
        "rails": len(spec.fabric.rails) or spec.fabric.nics_per_node,
        "gpus": validation_tasks.slots(site),
        "want": result,
    }
    return Step(
        task=task(STAGE, name, Verb.LOCALISE, deadline=LOCALISE_SECONDS, arguments=arguments, expectations=expectations),
        after=after,
        rules=rights.check_rules(*rights.FABRIC_TESTS, *_claim_rules(spec)),
    )


def _claim_rules(spec: ClusterSpec) -> tuple[Rule, ...]:
    if not has_gpu_cluster(spec):
        return ()
    return (replace(rights.GPU_CLAIMS, verbs=(*rights.GPU_CLAIMS.verbs, "patch")),)


def _fabric_common(spec: ClusterSpec) -> list[Object]:
    """Return the objects that all tests share: namespace, the Service by which pods of a Job find each other, and GPU claims."""
    service = manifest_objects.ring_service(STAGE, FABRIC_CHECK, FABRIC_CHECK, {"clusterIP": "None"})
    return [manifest_objects.check_namespace(), service, *manifest_objects.node_claims(spec, STAGE, FABRIC_CHECK)]


def _fabric_meta(site: Site) -> Object:
    return {"labels": manifest_objects.check_labels(STAGE, FABRIC_CHECK), **validation_tasks.network_annotations(site)}


def _pair_job(site: Site) -> Object:
    """Return the template of the Job in which pairs of its nodes measure all rails in both directions."""
    spec, fabric = site.spec, site.spec.fabric
    ids = (*fabric.device_ids, VIRTUAL_FUNCTION) if fabric.mode == "sriov" else fabric.device_ids
    settings = {"COUNT": "@count_text", "JOB": "@name", "SERVICE": FABRIC_CHECK, "TESTED": "@rails"}
    settings |= {"STEPS": str(MOST_MEETINGS), "DEVICE_IDS": " ".join(ids), "LINK": _LINK[fabric.kind], "MEMORY": "cuda"}
    settings["NICS"] = str(fabric.nics_per_node)
    settings |= {"RAILS": " ".join(fabric.rails)} if fabric.rails else {}
    settings |= {} if fabric.attachments_are_allocated else {"NUMBERS": "name"}
    env = [manifest_objects.node_name(), *({"name": name, "value": value} for name, value in settings.items())]
    container = manifest_objects.container(spec.validation.image, manifest_objects.script("fabric_pair.sh"), env=env)
    pod = manifest_objects.gpu_pod(site, container, FABRIC_CHECK, fabric=True)
    job = manifest_objects.per_node_job(STAGE, FABRIC_CHECK, {"subdomain": FABRIC_CHECK, **pod}, seconds=0)
    template = {**job["spec"]["template"], "metadata": _fabric_meta(site)}
    # pods of different Jobs of one round run on different nodes, so anti-affinity is against the pods of all of them
    return {
        **job,
        "metadata": {**job["metadata"], "name": "@name"},
        "spec": {**job["spec"], "activeDeadlineSeconds": "@seconds", "template": template},
    }
