"""Stage validation: accept the platform by measurements: NCCL inside nodes, DCGM diagnostics, and NCCL over all nodes.

A Job in the target cluster applies the upstream MPI operator. Facts: `steps/docs/facts/acceptance.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from steps.contract import fleet
from steps.contract.task import Verb
from workflows.accept.levels import LEVELS, QUICK
from workflows.catalog import PlannedRelease
from workflows.spec.cluster_spec import ClusterSpec, has_gpu_cluster, ib_write_bw_floor, intra_node_floor
from workflows.spec.untested import whole_pools
from workflows.stage_names import StageName
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Change, Object, Rule, Site, Stage, Step, task

STAGE: StageName = "validation"
RELEASE = "mpi_operator"
NAMESPACE = "mpi-operator"
GATE = "validation/control"
SECONDS = 900

KUBECTL_IMAGE = "registry.k8s.io/kubectl"
"""Image of the Job that applies the operator's manifest, used at the cluster's own Kubernetes version; the Job needs no shell."""


def install_name(release: PlannedRelease) -> str:
    """Return the name of the install Job, which contains the version because a Job cannot be changed."""
    return f"install-{re.sub('[^a-z0-9]+', '-', release.version.lower())}"


def apply(site: Site, release: PlannedRelease) -> Step:
    """Return the task that installs the MPI operator by a Job in the target cluster.

    Upstream has no chart, and the manifest with its CRD is too large for a task.
    """
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bringup-install", "namespace": NAMESPACE}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "bringup-install-mpi-operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "bringup-install", "namespace": NAMESPACE}],
    }
    arguments = {
        "objects": [manifest_objects.namespace(NAMESPACE), account, binding, _install_job(site, release)],
        **_observed(release),
        "gate_expectations": _control_expectations(release),
    }
    verbs = ("get", "create", "patch")
    return Step(
        task=task(STAGE, "apply", Verb.APPLY, deadline=300, arguments=arguments),
        rules=(
            *rights.CLAIM,
            Rule(groups=("",), resources=("namespaces",), verbs=verbs),
            Rule(groups=("",), resources=("serviceaccounts",), verbs=verbs, namespaces=(NAMESPACE,)),
            Rule(groups=("batch",), resources=("jobs",), verbs=verbs, namespaces=(NAMESPACE,)),
            Rule(groups=("rbac.authorization.k8s.io",), resources=("clusterrolebindings",), verbs=verbs),
            # Kubernetes lets nobody bind a role beyond his own rights without the verb `bind`
            Rule(groups=("rbac.authorization.k8s.io",), resources=("clusterroles",), verbs=("bind",)),
            *_READS,
        ),
    )


def _install_job(site: Site, release: PlannedRelease) -> Object:
    version = site.spec.rke2.version.partition("+")[0]
    kubectl = {
        "name": "kubectl",
        "image": f"{KUBECTL_IMAGE}:{version}",
        "args": ["apply", "--server-side", "--force-conflicts", "-f", release.manifest],
    }
    labels = {"bringup/install": release.release_name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": install_name(release), "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "backoffLimit": 3,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"restartPolicy": "Never", "serviceAccountName": "bringup-install", "containers": [kubectl]},
            },
        },
    }


_READS = (
    rights.CRDS,
    Rule(groups=("apps",), resources=("deployments",), verbs=("list",), namespaces=(NAMESPACE,)),
    Rule(groups=("batch",), resources=("jobs",), verbs=("get",), namespaces=(NAMESPACE,)),
    *rights.DIAGNOSE,
)


def _observed(release: PlannedRelease) -> Object:
    return {"gate": GATE, "install": install_name(release), "crds": list(release.crds)}


def _control_expectations(release: PlannedRelease) -> Object:
    return {"crds": list(release.crds), "tag": release.version.removeprefix("v")}


def control(release: PlannedRelease) -> Step:
    """Return the task that waits until the MPI operator runs and the API server serves its CRD."""
    arguments = {**_observed(release), "stable_seconds": 10, "namespaces": [NAMESPACE]}
    return Step(
        task=task(STAGE, "control", Verb.WAIT, deadline=SECONDS, arguments=arguments, expectations=_control_expectations(release)),
        after=("apply",),
        rules=_READS,
    )


JOB = "nccl-all-reduce"
INTER_CHECK = "nccl-inter"
_WORKERS = {"training.kubeflow.org/job-name": JOB, "training.kubeflow.org/job-role": "worker"}


def sizes(site: Site, runs: int, seconds: int) -> list[Object]:
    """Return the environment entries of the NCCL scripts: node name, message sizes, number of runs, and seconds per run."""
    message_sizes = site.spec.validation.nccl.sizes
    settings = {
        "FIRST": message_sizes[0],
        "LAST": message_sizes[-1],
        "RUNS": str(runs),
        "SECONDS_A_RUN": str(max((seconds - 300) // runs, 60)),
    }
    return [manifest_objects.node_name(), *({"name": name, "value": value} for name, value in settings.items())]


def slots(site: Site) -> int:
    """Return the number of MPI ranks per node: the GPU count of the machine with the fewest GPUs."""
    return min(machine.gpus for machine in site.machines if machine.gpu)


def mpi_job(site: Site, seconds: int) -> Object:
    """Return the MPIJob of the NCCL test over all nodes, with workers on exactly the nodes under test.

    The launcher starts once all workers are ready, and counts the ranks in its host file.
    """
    spec, labels = site.spec, manifest_objects.check_labels(STAGE, INTER_CHECK)
    env = [*sizes(site, spec.validation.runs, seconds), {"name": "PER_NODE", "value": str(slots(site))}]
    launch = manifest_objects.container(spec.validation.image, manifest_objects.script("nccl_inter.sh"), name="launcher", env=env)
    worker = {"name": "worker", "image": spec.validation.image, "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    pod = manifest_objects.gpu_pod(site, worker, INTER_CHECK, fabric=True)
    networks = {"k8s.v1.cni.cncf.io/networks": ",".join(["default/fabric"] * spec.fabric.attachments)}
    meta: Object = {"labels": labels, **({"annotations": networks} if spec.fabric.has_network else {})}
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
                    "replicas": manifest_objects.COUNT,
                    "restartPolicy": "Never",
                    "template": {"metadata": meta, "spec": workers},
                },
            },
        },
    }


INTRA_CHECK, DCGM_CHECK = "nccl-intra", "dcgm"
INTRA, DCGM, FUNCTIONAL = "validation/intra", "validation/dcgm", "validation/functional"

SPREAD_INTRA, SPREAD_INTER = 0.1, 0.15
"""Largest accepted difference between repeated runs, as a share of the fastest run; healthy fabrics repeat within a few percent."""

DCGM_IMAGE = "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04"
"""The DCGM image of GPU Operator 26.7 (its values.yaml `dcgm`); DCGM 4 runs with every driver from R535 on."""

DCGM_SECONDS = {1: 300, 2: 900, 3: 3600, 4: 10800}
"""Level of `dcgmi diag -r` → time limit in seconds, with a margin: levels take seconds, 2 minutes, 15 minutes, or longer."""


def build(site: Site) -> Stage | None:
    """Return stage validation, or None for a cluster without GPUs, which has nothing to measure."""
    release = site.releases.get(RELEASE)
    if release is None or site.spec.accelerator is None or not site.count("gpu"):
        return None
    site = _in_scope(site)
    parts = _parts(site)
    between = any(map(_measures_between, parts))
    steps, gates = [*([apply(site, release), control(release)] if between else [])], dict[str, str | Object]()
    gates |= {"control": GATE} if between else {}
    for part, step in _checks(parts, ("control",) if between else ()):
        steps.append(step)
        gates[step.name] = manifest_objects.pool_check(site, part, STAGE, str(step.task.arguments["gate"]))
    return Stage(
        id=STAGE,
        title="Validation",
        steps=(*steps, _judge(site, gates)),
        gates=tuple(dict.fromkeys(str(step.task.arguments["gate"]) for step in steps if step.name != "apply")),
        changes=(
            *([Change(what=f"install mpi-operator {release.version}", where=release.namespace)] if between else []),
            Change(
                what=f"load every GPU and fabric port for about {LEVELS[site.spec.validation.level].minutes} minutes",
                where=f"{site.count('gpu')} GPU nodes",
            ),
        ),
        rollback=release.rollback,
        releases=(release.id,) if between else (),
    )


def _in_scope(site: Site) -> Site:
    """Return the site without the GPU machines that an acceptance of some nodes leaves out; else the site itself."""
    if not site.is_scoped:
        return site
    return replace(
        site, machines=tuple(machine for machine in site.machines if not machine.gpu or site.operation.touches(machine.name))
    )


def _judge(site: Site, gates: Mapping[str, str | Object]) -> Step:
    """Return the task that decides the stage. All nodes of an acceptance's scope must pass, whatever the quorum of the fleet."""
    if not site.is_scoped:
        return manifest_objects.judge(site, STAGE, gates)
    return manifest_objects.judge(site, STAGE, gates, members=f"{fleet.TOUCHED}gpu", needed=site.count("gpu"))


def _whole(spec: ClusterSpec) -> bool:
    """Return True if pods can have whole GPUs, which is False with MIG: NCCL cannot join MIG instances of several GPUs."""
    return spec.sharing.mode != "mig"


def _parts(site: Site) -> list[Site]:
    """Return a site for each set of machines that are measured alike: those with the same whole GPUs, and each pool with MIG.

    Pools that differ only in how pods share whole GPUs are one set.
    """
    if len(site.pools) < 2:
        return [site]
    return [part for part in _pool_parts(site) if part.count("gpu")]


def _pool_parts(site: Site) -> list[Site]:
    parts = []
    for together in whole_pools(site.spec):
        groups = tuple(name for pool in together for name in pool.groups)
        machines = tuple(machine for machine in site.machines if not machine.gpu or machine.group in groups)
        # pods can request whole GPUs only if they are shared nowhere in the set
        shared = next((pool.spec for pool in together if pool.sharing.mode != "none"), together[0].spec)
        parts.append(replace(site, spec=shared, machines=machines, pool=replace(together[0], groups=groups)))
    return [*parts, *(part for part in site.pools if not _whole(part.spec))]


def _measures_between(part: Site) -> bool:
    return _whole(part.spec) and part.count("gpu") > 1


def _checks(parts: Iterable[Site], after: tuple[str, ...]) -> Iterator[tuple[Site, Step]]:
    """Yield the tasks of the checks, each after the one before, since each needs all GPUs of a node; the first after `after`.

    A node that fails a check is left out of the next. The checks of different parts follow each other, since they have the same
    names.
    """
    for part in parts:
        spec, passed = part.spec, list[str]()
        steps = [_intra] if _whole(spec) and spec.accelerator and spec.accelerator.per_node > 1 else []
        between = [_functional, *([_localise] if spec.fabric.kind != "none" else [])] if _measures_between(part) else []
        for make in (*steps, _dcgm, *between):
            step = make(part, after, tuple(passed))
            yield part, step
            # the nodes are localised whatever NCCL over all of them showed, which has no verdict on nodes
            passed += [step.name] if make is not _functional else []
            after = (step.name,)


def _seconds(site: Site) -> int:
    """Return the spec's time limit of one test in seconds."""
    return int(site.spec.validation.timeout.total_seconds())


# ---- checks --------------------------------------------------------------------------------------------------------------------


def _check(
    site: Site,
    name: str,
    gate: str,
    check: str,
    items: list[Object],
    *,
    after: tuple[str, ...],
    passed: tuple[str, ...],
    seconds: int,
    expectations: Object,
    rules: tuple[Rule, ...] = (),
) -> Step:
    """Return the task of one check after the task `after`, on the nodes that passed the checks `passed`.

    `seconds` is its time limit.
    """
    claims = manifest_objects.node_claims(site.spec, STAGE, check)
    return manifest_objects.check_step(
        STAGE,
        gate,
        check,
        [*claims, *items],
        deadline=seconds,
        expectations=expectations,
        name=site.named(name),
        waits_for=after,
        passed=passed,
        rules=(*rules, *((rights.GPU_CLAIMS,) if claims else ())),
        select=site.gpu_select,
        **({"least": 2} if gate == FUNCTIONAL else {}),
    )


def _want(site: Site, *, floor: float | None, spread: float, **more: bool | int) -> Object:
    """Return the NCCL result that a gate expects, with the fields of `steps.contract.nccl.NcclWant`; no `floor` if None."""
    return {"runs": site.spec.validation.runs, "spread": spread, **({"floor": floor} if floor else {}), **more}


def _intra(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    spec, seconds = site.spec, _seconds(site)
    script, env = manifest_objects.script("nccl_intra.sh"), sizes(site, spec.validation.runs, seconds)
    pod = manifest_objects.gpu_pod(site, manifest_objects.container(spec.validation.image, script, env=env), INTRA_CHECK)
    return _check(
        site,
        "nccl_intra",
        INTRA,
        INTRA_CHECK,
        [manifest_objects.per_node_job(STAGE, INTRA_CHECK, pod, seconds=seconds - 30)],
        after=after,
        passed=passed,
        seconds=seconds,
        expectations={**manifest_objects.gpu_counts(site), "want": _want(site, floor=intra_node_floor(spec), spread=SPREAD_INTRA)},
    )


def _dcgm(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    spec = site.spec
    # with MIG, pods hold no whole GPU, which the hardware tests of higher levels need
    level = LEVELS[spec.validation.level].dcgm_level(spec.validation.dcgm_level) if _whole(spec) else 1
    seconds = DCGM_SECONDS[level]
    env = [
        manifest_objects.node_name(),
        {"name": "LEVEL", "value": str(level)},
        {"name": "SECONDS_TO_RUN", "value": str(seconds - 120)},
    ]
    container = manifest_objects.container(DCGM_IMAGE, manifest_objects.script("dcgm.sh"), env=env)
    pod = manifest_objects.gpu_pod(site, container, DCGM_CHECK)
    return _check(
        site,
        "dcgm",
        DCGM,
        DCGM_CHECK,
        [manifest_objects.per_node_job(STAGE, DCGM_CHECK, pod, seconds=seconds - 30)],
        after=after,
        passed=passed,
        seconds=seconds,
        expectations={**manifest_objects.gpu_counts(site), "level": level},
    )


def _functional(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    spec, seconds = site.spec, _seconds(site)
    rdma = spec.fabric.kind != "none"
    want = _want(
        site,
        floor=spec.validation.nccl.inter_node_floor_gb_s,
        spread=SPREAD_INTER,
        **({"rdma": True, "gdr": True, "hcas": spec.fabric.nics_per_node} if rdma else {}),
    )
    jobs = Rule(
        groups=("kubeflow.org",),
        resources=("mpijobs",),
        verbs=("get", "create", "delete"),
        namespaces=(manifest_objects.CHECK_NAMESPACE,),
    )
    return _check(
        site,
        "functional",
        FUNCTIONAL,
        INTER_CHECK,
        [mpi_job(site, seconds)],
        after=after,
        passed=passed,
        seconds=seconds,
        expectations={"gpus": slots(site), "want": want},
        rules=(jobs,),
    )


# ---- localisation --------------------------------------------------------------------------------------------------------------

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


def _localise(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    """Return the task that runs rounds of tests between nodes until the part at fault is named, or every node is cleared.

    Groups of nodes run the MPIJob of the task before it, NCCL over all nodes. At level quick it runs only if that did not pass.
    """
    spec, name = site.spec, site.named("localise")
    templates = {"check": FABRIC_CHECK, "common": _fabric_common(spec), "pair": _pair_job(site)}
    arguments: Object = {"gate": LOCALISE, "templates": templates, "select": site.gpu_select, "after": list(passed)}
    arguments["group"] = after[0]
    arguments |= {"unless": after[0]} if spec.validation.level == QUICK else {}
    arguments["policy"] = {"noise": LOCALISE_NOISE, "most_rounds": LOCALISE_ROUNDS}
    want = _want(site, floor=spec.validation.nccl.inter_node_floor_gb_s, spread=SPREAD_INTER) | {"runs": 1}
    expectations = {
        "floor": ib_write_bw_floor(spec) or 0.0,
        "rails": len(spec.fabric.rails) or spec.fabric.nics_per_node,
        "gpus": slots(site),
        "want": want,
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
    networks = {"k8s.v1.cni.cncf.io/networks": ",".join(["default/fabric"] * site.spec.fabric.attachments)}
    labels = manifest_objects.check_labels(STAGE, FABRIC_CHECK)
    return {"labels": labels, **({"annotations": networks} if site.spec.fabric.has_network else {})}


def _pair_job(site: Site) -> Object:
    """Return the template of the Job in which every two of its nodes measure all rails in both directions."""
    spec, fabric = site.spec, site.spec.fabric
    ids = (*fabric.device_ids, VIRTUAL_FUNCTION) if fabric.mode == "sriov" else fabric.device_ids
    settings = {"COUNT": "@count_text", "JOB": "@name", "SERVICE": FABRIC_CHECK, "TEST_NODES": "@node_names", "TESTED": "@rails"}
    settings |= {"DEVICE_IDS": " ".join(ids), "LINK": _LINK[fabric.kind], "MEMORY": "cuda"}
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
