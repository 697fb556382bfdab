"""Stage slurm by SUNK 7: simulated charts `sunk` and `slurm`, the operator, and the pods that run slurmd.

Names, labels and defaults of the charts are those of https://github.com/coreweave/sunk-anywhere; see `steps/docs/facts/slurm.md`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from steps.contract import topology_conf
from steps.contract.gres_conf import KEY
from steps.contract.gres_conf import nodes_of as nodes_of_conf
from workflows.rehearsal.simulator.api.api_kinds import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    STATEFUL_SETS,
    Obj,
    Ref,
    annotations_of,
    custom,
    ref,
)
from workflows.rehearsal.simulator.charts.chart_installers import ChartError, ChartRelease, chart, workload_spec
from workflows.rehearsal.simulator.charts.operators import has_ready_pod
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.container_commands import container_command
from workflows.rehearsal.simulator.controllers.scheduler import admits, requests
from workflows.rehearsal.simulator.controllers.simulated_pods import (
    Behaviour,
    BlockedStart,
    Exit,
    LongRunning,
    blocked_by,
    pod_program,
)
from workflows.rehearsal.simulator.machines.played_commands import PlayedOutput
from workflows.rehearsal.simulator.stages.slurm import slurm_drains, slurm_job_check, slurm_qos, slurm_srun_check
from workflows.rehearsal.simulator.stages.slurm.slurm_controller import ControlledNode, SimulatedSlurm
from workflows.rehearsal.simulator.stages.slurm.slurm_foreign_pods import create_foreign_pods
from workflows.rehearsal.simulator.stages.slurm.slurm_gpu_monitor import write_monitor_conditions
from workflows.rehearsal.simulator.stages.slurm.slurm_job_check import CheckRun, SlurmSurroundings
from workflows.rehearsal.simulator.stages.slurm.slurm_pod_scheduler import install_scheduler, schedule_pods
from workflows.rehearsal.simulator.world import Changes, World

GROUP = "sunk.coreweave.com"
NODE_SETS = custom(GROUP, "NodeSet")
DATABASES = custom("moco.cybozu.com", "MySQLCluster")
NAMESPACE = "sunk"
GPU = "nvidia.com/gpu"
NODE_SET, ROLE, GRES = f"{GROUP}/nodeset", f"{GROUP}/role", f"{GROUP}/gres-gpu"
CLASS = {"key": "node.coreweave.cloud/class", "operator": "In", "values": ["cpu"]}
"""Node requirement of the charts' control pods by default. Only CoreWeave's nodes have this label."""
CONF, COUNTED = "slurm-slurm-conf", "simulated/gres-count"
"""ConfigMap with slurm.conf and gres.conf; annotation of a slurmd pod with the GPUs that gres.conf had for it when it started."""
KEY_JOB = "slurm-secret-job"
SHARING = "simulated/oversubscribe"
"""Annotation of a NodeSet with OverSubscribe of its partition."""
READ = "simulated/topology"
"""Annotation of the ConfigMap with the topology.conf that slurmctld has read."""
CONDITIONS = ("SlurmCordon", "SlurmDrain", "SlurmRunning", "SlurmNotResponding")
"""Pod conditions by which SUNK shows the state of a Slurm node; none of them True means idle."""
LOWER = "gres/gpu count reported lower than configured (0 < {count})"
REFUSED = 'level=error msg="failed to list nodes" error="GET /slurm/v0.0.43/nodes: 401 Unauthorized"\n'
SYNC_SECONDS = 300.0
"""Virtual seconds between two such lines of the syncer: few, as each of them is a request."""
MONITORED = {"sunk": ("operator", "scheduler", "syncer"), "slurm": ("login.loginController", "login.directoryCache")}
"""Parts of each chart that have monitors, which are on by default."""


# ---- charts --------------------------------------------------------------------------------------------------------------------


@chart("sunk")
def operator(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart sunk: the operator, its kinds, and what its values leave on."""
    _refuse_monitors(release)
    release.crds(GROUP)
    affinity = _affinity(release, "operator.affinity")
    cpus = release.value("operator.resources.requests.cpu", "8")
    pod = {"affinity": affinity, "tolerations": release.value("operator.tolerations", [])}
    spec: Obj = {"replicas": 1, **workload_spec("sunk-operator", {}, "simulated/sunk-operator", pod)}
    spec["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpus}}
    release.put(DEPLOYMENTS, {"metadata": {"name": "sunk-operator"}, "spec": spec})
    if release.value("nvidia-device-plugin.enabled", True):
        release.daemon_set("sunk-nvidia-device-plugin", image="nvcr.io/nvidia/k8s-device-plugin:simulated")


@chart("moco")
def database_operator(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart moco: its kinds, and the operator that makes MySQL clusters. cert-manager must be there."""
    release.crds("moco.cybozu.com")
    pod = {"tolerations": release.value("tolerations", [])}
    body = {"replicas": 2} | workload_spec("moco-controller", {}, "ghcr.io/cybozu-go/moco:simulated", pod)
    release.put(DEPLOYMENTS, {"metadata": {"name": "moco-controller"}, "spec": body})


def install_cluster(release: ChartRelease) -> None:
    """Install SUNK's simulated chart slurm: controller, login, REST API, syncer, and a NodeSet for each enabled group of nodes.

    Raises ChartError for monitors of a kind that is not served, for a database without its operator, and for a Service of the login
    pods that the API server refuses.
    """
    _refuse_monitors(release)
    if release.value("moco.enabled", True):
        if not release.world.served(DATABASES):
            kind = 'no matches for kind "MySQLCluster" in version "moco.cybozu.com/v1beta2"'
            raise ChartError(f"{kind}\nensure CRDs are installed first")
        cluster = release.value("moco.mysqlCluster", {})
        release.put(DATABASES, {"metadata": {"name": "slurm"}, "spec": {"replicas": 1}})
        database = workload_spec("moco-slurm", {}, "simulated/mysql", {"affinity": cluster.get("affinity") or {}})
        release.put(
            STATEFUL_SETS, {"metadata": {"name": "moco-slurm"}, "spec": database | {"replicas": 1, "serviceName": "moco-slurm"}}
        )
    service = release.value("login.service", {})
    if service.get("type", "ClusterIP") == "ClusterIP" and service.get("externalTrafficPolicy", "Local"):
        problem = "may only be set when `type` is 'NodePort' or 'LoadBalancer'"
        raise ChartError(f'Service "slurm-login" is invalid: spec.externalTrafficPolicy: Invalid value: "Local": {problem}')
    # each install or upgrade writes gres.conf anew
    conf = release.world.find(CONFIG_MAPS, CONF, release.namespace) or {}
    kept = {key: text for key, text in (conf.get("data") or {}).items() if key != KEY}
    release.put(CONFIG_MAPS, {"metadata": {"name": CONF}, "data": {**kept, KEY: "AutoDetect=nvml\n"}})
    pod = {"affinity": _affinity(release, "global.nodeSelector.affinity")}
    sets = {"controller": 1, "login": release.value("login.replicas", 1)}
    for part, replicas in sets.items():
        name = f"slurm-{part}"
        body = workload_spec(name, {"app.kubernetes.io/component": part}, f"simulated/{part}", pod)
        body["template"]["spec"]["containers"][0]["name"] = "sshd" if part == "login" else "slurmctld"
        body |= {"updateStrategy": {"type": release.value(f"{part}.updateStrategy", "RollingUpdate")}}
        release.put(STATEFUL_SETS, {"metadata": {"name": name}, "spec": body | {"replicas": replicas, "serviceName": name}})
    _make_keys(release, pod)
    install_scheduler(release, pod)
    for part in ("rest", *(["syncer"] if release.value("syncer.enabled", True) else ())):
        name, labels = f"slurm-{part}", {"app.kubernetes.io/name": f"sunk-{part}"}
        body = {"replicas": 1} | workload_spec(name, labels, f"simulated/{part}", pod)
        release.put(DEPLOYMENTS, {"metadata": {"name": name}, "spec": body})
    for name, group in release.value("compute.nodes", {}).items():
        if group.get("enabled", False):
            meta = {
                "name": f"slurm-{name}",
                "annotations": {SHARING: (group.get("partitionConfig") or {}).get("OverSubscribe", "")},
            }
            release.put(NODE_SETS, {"metadata": meta, "spec": _node_set(release, name, group)})


def _make_keys(release: ChartRelease, pod: Obj) -> None:
    """Create or update the Job that makes Slurm's keys, whose template has the chart's version."""
    job = workload_spec(KEY_JOB, {}, f"simulated/secret-job:{release.version}", pod | {"restartPolicy": "Never"})
    spec = {"backoffLimit": 6, "template": job["template"]}
    if release.world.fault("sunk_secret_job_hangs"):
        old = workload_spec(KEY_JOB, {}, "simulated/secret-job:7.2.0", pod | {"restartPolicy": "Never"})
        if release.world.read(JOBS, KEY_JOB, release.namespace) is None:
            release.put(JOBS, {"metadata": {"name": KEY_JOB}, "spec": spec | {"template": old["template"]}})
    release.put(JOBS, {"metadata": {"name": KEY_JOB}, "spec": spec})


@pod_program("app", "slurm-secret-job")
def secret_job(world: World, _pod: Obj, _node: str) -> Behaviour:
    """Play the Job that makes keys: it ends, or waits for slurmctld for ever."""
    return LongRunning() if world.fault("sunk_secret_job_hangs") else Exit(seconds=40)


def _node_set(release: ChartRelease, name: str, group: Obj) -> Obj:
    pod = {key: group.get(key) for key in ("nodeSelector", "affinity", "tolerations") if group.get(key)}
    pod |= {"volumes": release.value("global.volumes", [])}
    if not pod.get("affinity") and not pod.get("nodeSelector"):
        pod["affinity"] = _affinity(release, "global.nodeSelector.affinity")
    labels = {NODE_SET: f"slurm-{name}", ROLE: "compute", GRES: str(group.get("gresGpu") or "").partition(":")[0]}
    resources = {} if release.world.fault("sunk_gpus_not_requested") else group.get("resources") or {}
    image = group.get("image") or {}
    name_of_image = f"{image.get('repository', 'simulated/slurmd')}:{image.get('tag', 'chart')}"
    container = {"name": "slurmd", "image": name_of_image, "resources": resources}
    if release.value("compute.securityContext.privileged", False):
        container["securityContext"] = {"privileged": True}
    template = {"metadata": {"labels": labels}, "spec": pod | {"containers": [container]}}
    return {"replicas": group.get("replicas", 0), "template": template}


def _affinity(release: ChartRelease, path: str) -> Obj:
    """Return the node affinity of control pods: the chart's own unless the values have another one, or null."""
    own = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [CLASS]}]}}
    value = release.value(path, {"nodeAffinity": own})
    return dict(value or {})


def _refuse_monitors(release: ChartRelease) -> None:
    for part in MONITORED[release.chart]:
        if release.value(f"{part}.vmPodScrape.enabled", True):
            raise ChartError('no matches for kind "VMPodScrape" in version "operator.victoriametrics.com/v1beta1"')


# ---- operator ------------------------------------------------------------------------------------------------------------------


class Sunk:
    """Simulated operator of SUNK with slurmctld and syncer: slurmd pods, the states of their Slurm nodes, NodeSet status."""

    name = "sunk"
    kinds = (NODE_SETS, STATEFUL_SETS, DEPLOYMENTS, PODS, NODES, CONFIG_MAPS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Create missing slurmd pods on feasible nodes; schedule the state of each ready one, and the status of NodeSets."""
        if not world.served(NODE_SETS) or not has_ready_pod(world, NAMESPACE, "sunk-operator"):
            return
        create_foreign_pods(world)
        if world.fault("sunk_syncer_refused"):
            world.clock.schedule("sunk/syncer/log", SYNC_SECONDS, functools.partial(_complain, world))
        write_monitor_conditions(world)
        if world.fault("sunk_lock_not_tolerated"):
            spec = workload_spec("log-agent", {}, "simulated/log-agent", {})
            world.ensure(DAEMON_SETS, {"metadata": {"name": "log-agent", "namespace": "default"}, "spec": spec})
        # a deleted pod comes back even if the NodeSet counts as many ready ones as before, since another has become ready
        lost = any(world.find(PODS, at) is None for at in changed.refs(PODS))
        every = changed.everything or lost or changed.concern(NODE_SETS, DEPLOYMENTS)
        names = [node["metadata"]["name"] for node in world.objects(NODES)] if every else [at.name for at in changed.refs(NODES)]
        for node_set in list(world.objects(NODE_SETS)):
            for name in names:
                _ensure_slurmd(world, node_set, name)
            at = ref(node_set)
            for pod in _pods(world, node_set):
                _register(world, pod)
            schedule_pods(world, at.namespace, [node.host for node in nodes_of(world, at.namespace) if node.state == "idle"])
            world.later(f"sunk/{at.namespace}/{at.name}/status", 5, 10, functools.partial(_status, world, at))


def _complain(world: World) -> None:
    """Write again into the syncer's log that slurmrestd refuses it."""
    for pod in world.objects(PODS):
        if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "sunk-syncer" and simulated_pods.ready(pod):
            world.log(pod, pod["spec"]["containers"][0]["name"], REFUSED)
    # no scaled delay: with delays of zero it would write for ever
    world.clock.schedule("sunk/syncer/log", SYNC_SECONDS, functools.partial(_complain, world))


def _feasible(world: World, node_set: Obj) -> list[str]:
    """Return the nodes that a NodeSet's pods fit by selector, affinity and taints, at most as many as it asks for."""
    spec = node_set["spec"]["template"]["spec"]
    names = [node["metadata"]["name"] for node in world.objects(NODES) if not admits(node, spec)]
    return sorted(names)[: node_set["spec"]["replicas"]]


def _pods(world: World, node_set: Obj) -> list[Obj]:
    return world.owned(PODS, node_set["metadata"]["uid"])


def _ensure_slurmd(world: World, node_set: Obj, node: str) -> None:
    at, number = ref(node_set), world.fleet.number(node)
    place = Ref(at.namespace, f"{at.name}-{number // 1000:03d}-{number % 1000:03d}")
    if world.find(PODS, place) is not None or node not in _feasible(world, node_set):
        return
    template = node_set["spec"]["template"]
    labels = template["metadata"]["labels"] | {"app.kubernetes.io/component": "compute"}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    pinned = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    spec = template["spec"] | {"hostname": place.name, "affinity": pinned}
    meta = {"name": place.name, "namespace": at.namespace, "labels": labels, "ownerReferences": [NODE_SETS.owner(node_set)]}
    # slurmd reads gres.conf when it starts
    conf = (world.find(CONFIG_MAPS, CONF, at.namespace) or {}).get("data") or {}
    lines = nodes_of_conf(conf.get(KEY, ""))
    counted = lines[place.name].count if place.name in lines else 0
    world.create_soon(PODS, {"metadata": meta | {"annotations": {COUNTED: str(counted)}}, "spec": spec})


def _register(world: World, pod: Obj) -> None:
    """Schedule the conditions of a ready slurmd pod, once slurmctld answers and the syncer copies Slurm's states."""
    space = pod["metadata"]["namespace"]
    controller = world.find(STATEFUL_SETS, "slurm-controller", space) or {}
    answers = bool(controller.get("status", {}).get("readyReplicas")) and has_ready_pod(world, space, "slurm-syncer")
    if world.fault("sunk_syncer_refused"):
        return
    if not answers or not simulated_pods.ready(pod):
        return
    if _slurm_conditions(pod) and world.fault("slurm_states_stale"):
        return
    if _conditions(world, pod) != {entry["type"]: entry["status"] for entry in _slurm_conditions(pod)}:
        at = ref(pod)
        world.later(f"sunk/{at.namespace}/{at.name}/register", 3.0, 15.0, functools.partial(_write_conditions, world, at))


def _slurm_conditions(pod: Obj) -> list[Obj]:
    return [entry for entry in pod.get("status", {}).get("conditions") or () if entry["type"] in CONDITIONS]


def _conditions(world: World, pod: Obj) -> dict[str, str]:
    node = simulated_pods.node(pod)
    true = {"SlurmDrain"} if _reason(world, pod) else set()
    true |= {"SlurmCordon"} if (world.find(NODES, node) or {"spec": {}})["spec"].get("unschedulable") else set()
    true |= {"SlurmNotResponding"} if world.fault("sunk_nodes_down", node) else set()
    return {name: "True" if name in true else "False" for name in CONDITIONS}


def _reason(world: World, pod: Obj) -> str:
    """Return why Slurm drains a node; empty if it does not. Without NVML in its image slurmd finds only GPUs of its line."""
    count = int(requests(pod).get(GPU, 0.0))
    counted = int(annotations_of(pod).get(COUNTED, "0"))
    lacks = world.fault("sunk_gres_autodetect", simulated_pods.node(pod)) or counted < count
    if count and lacks:
        return LOWER.format(count=count)
    if world.fault("slurm_nodes_drained", simulated_pods.node(pod)):
        return slurm_drains.LOW_MEMORY
    return slurm_drains.reason_of(world, simulated_pods.node(pod))


def _write_conditions(world: World, at: Ref) -> None:
    pod = world.find(PODS, at)
    if pod is None or not simulated_pods.ready(pod):
        return
    others = [entry for entry in pod["status"]["conditions"] if entry["type"] not in CONDITIONS]
    own: list[Obj] = [
        {"type": name, "status": status, "message": _reason(world, pod) if name == "SlurmDrain" and status == "True" else ""}
        | {"lastTransitionTime": world.stamp()}
        for name, status in _conditions(world, pod).items()
    ]
    world.patch_soon(PODS, pod, {"status": {"conditions": [*others, *own]}}, status=True)


def _status(world: World, at: Ref) -> None:
    node_set = world.find(NODE_SETS, at)
    if node_set is None:
        return
    pods = _pods(world, node_set)
    ready, desired = sum(simulated_pods.ready(pod) for pod in pods), len(_feasible(world, node_set))
    drained = sum(
        any(entry["type"] == "SlurmDrain" and entry["status"] == "True" for entry in _slurm_conditions(pod)) for pod in pods
    )
    status = {
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "numberDrain": drained,
        "numberUnavailable": desired - ready,
        "observedGeneration": node_set["metadata"].get("generation", 1),
    }
    world.patch(NODE_SETS, node_set, {"status": status}, status=True)


@pod_program(ROLE, "compute")
def slurmd(world: World, pod: Obj, node: str) -> Behaviour:
    """Play a slurmd pod: it crashes without the privileges that its cgroups need, and without its GPUs."""
    container = pod["spec"]["containers"][0]
    if not (container.get("securityContext") or {}).get("privileged"):
        message = "error: cannot create cgroup context: unable to open /sys/fs/cgroup/system.slice: Read-only file system"
        return BlockedStart(reason="CrashLoopBackOff", message=message)
    if world.fault("slurmd_crashes", node):
        message = "fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory"
        return BlockedStart(reason="CrashLoopBackOff", message=message)
    return LongRunning()


blocked_by("slurmctld_crashes", "app.kubernetes.io/component", "controller", "back-off 5m0s restarting failed container=slurmctld")


@pod_program("app.kubernetes.io/name", "sunk-syncer")
def syncer(world: World, _pod: Obj, _node: str) -> Behaviour:
    """Play a pod of the syncer; its log is written by the operator's role, as it works all the time."""
    if world.fault("sunk_syncer_down"):
        return BlockedStart(reason="CreateContainerConfigError", message='secret "slurm-syncer-token" not found')
    return LongRunning(log=REFUSED if world.fault("sunk_syncer_refused") else "level=info msg=synchronised error=<nil>\n")


@container_command("gres")
def resume(world: World, pod: Obj, variables: Mapping[str, str]) -> PlayedOutput:
    """Play the script that has slurmctld read topology.conf, resumes nodes drained for their GPUs, and tells which still are."""
    space = pod["metadata"]["namespace"]
    drained = [
        ref(slurmd).name for node_set in world.objects(NODE_SETS) for slurmd in _pods(world, node_set) if _reason(world, slurmd)
    ]
    conf = world.find(CONFIG_MAPS, CONF, space)
    # slurmctld reads topology.conf when it is told to
    if conf is not None and variables.get("TOPOLOGY") and _answers(world, space):
        read = (conf.get("data") or {}).get(topology_conf.KEY, "")
        world.patch(CONFIG_MAPS, conf, {"metadata": {"annotations": {READ: read}}})
    if not _answers(world, space):
        return PlayedOutput(stderr="slurm_load_partitions: Unable to contact slurm controller (connect failure)\n", code=1)
    return PlayedOutput(stdout=f"still drained {' '.join(drained)}\n" if drained else "", seconds=240 if drained else 20)


# ---- Slurm's tools in the login pod ----------------------------------------------------------------------------------------------


@container_command("srun")
def srun(world: World, pod: Obj, variables: Mapping[str, str]) -> PlayedOutput:
    """Play the check `srun` in a login pod: what `workflows/stages/scripts/srun.sh` prints there."""
    space = pod["metadata"]["namespace"]
    if refused := _cut_off(world, space):
        return PlayedOutput(refused=refused)
    gpus = int(variables.get("GPUS", "0")) > 0
    text, exits = slurm_srun_check.report(world, nodes_of(world, space), answers=_answers(world, space), gpus=gpus)
    if variables.get("ACCOUNTING"):
        known, exits["accounting"] = _accounting(world, space), 0
        line = f"tenant-slurm|{'10.43.0.61' if known else ''}\n"
        text = text.replace("@errors\n", f"@clusters\n{line}@errors\n")
    return PlayedOutput(stdout=text + _report(pod, {"exits": exits}), seconds=25)


@container_command("slurm-jobs")
def slurm_jobs(world: World, pod: Obj, variables: Mapping[str, str]) -> PlayedOutput:
    """Play the check `slurm-jobs` in a login pod, on a simulated slurmctld."""
    space = pod["metadata"]["namespace"]
    if refused := _cut_off(world, space):
        return PlayedOutput(refused=refused)
    if not _answers(world, space):
        return PlayedOutput(stdout="@ping\nSlurmctld(primary) at slurm-controller is DOWN\n" + _report(pod, {}), seconds=25)
    nodes = nodes_of(world, space)
    sets = {ref(node_set).name: node_set for node_set in world.objects(NODE_SETS)}
    members = {name.removeprefix("slurm-"): tuple(ref(pod).name for pod in _pods(world, item)) for name, item in sets.items()}
    sharing = {name.removeprefix("slurm-"): annotations_of(item).get(SHARING, "") for name, item in sets.items()}
    sharing = {name: rule for name, rule in sharing.items() if rule}
    for node in nodes:
        node.shared = node.name in slurm_job_check.shared_nodes(members, sharing)
    slurm = SimulatedSlurm(slurm_job_check.with_stale(world, nodes), members, world.now, slurm_job_check.faults(world))
    conf = world.find(CONFIG_MAPS, CONF, space) or {"metadata": {}}
    stale = bool(world.fault("sunk_metrics_before_gres"))
    shown = [replace(node, gpus=0) for node in nodes] if stale else nodes
    around = SlurmSurroundings(
        metrics=slurm_job_check.served_metrics(shown, "slurm_nodes_total", gpus="slurm_partition_gpu_total"),
        accounting=_accounting(world, space),
        topology=slurm_job_check.running_topology(world, topology_conf.leaves_of(annotations_of(conf).get(READ, ""))),
        topology_file=slurm_job_check.topology_file(world, (conf.get("data") or {}).get(topology_conf.KEY, "")),
        sharing=slurm_job_check.shown_sharing(world, sharing),
        qos=slurm_qos.known(world, space),
        home_shared=not world.fault("slurm_home_not_shared"),
        users=frozenset() if world.fault("slurm_user_unresolved") else frozenset({variables.get("USER_NAME", "")}),
        memory=slurm_job_check.machine_memory(world, {node.name: node.host for node in nodes}),
    )
    text = slurm_job_check.report(CheckRun(slurm=slurm, around=around, variables=variables))
    return PlayedOutput(stdout=text + _report(pod, {}), seconds=45)


def _report(pod: Obj, fields: Obj) -> str:
    """Return the last line of a check in a login pod: its report."""
    return msgspec.json.encode({"node": pod["metadata"]["name"], **fields, "packed": ""}).decode()


def _cut_off(world: World, namespace: str) -> str:
    """Return why the kubelet does not run a command in the login pod: on its node the lock has evicted what networks need."""
    if not world.fault("sunk_lock_evicts_network"):
        return ""
    return f"unable to upgrade connection: error dialing backend: remote error: no route to pods of {namespace}"


def _answers(world: World, namespace: str) -> bool:
    controller = world.find(STATEFUL_SETS, "slurm-controller", namespace) or {}
    return bool(controller.get("status", {}).get("readyReplicas"))


def _accounting(world: World, namespace: str) -> bool:
    """Return True if slurmdbd has its database and slurmctld has registered there."""
    return world.find(STATEFUL_SETS, "moco-slurm", namespace) is not None and not world.fault("slurm_accounting_unregistered")


def nodes_of(world: World, namespace: str) -> list[ControlledNode]:
    """Return the Slurm nodes that have registered, by the conditions that the syncer copies; each has the name of its pod."""
    pods = [pod for pod in world.select(PODS, namespace, {ROLE: "compute"}) if _slurm_conditions(pod)]
    return [_controlled(world, pod) for pod in pods]


def _controlled(world: World, pod: Obj) -> ControlledNode:
    host, true = simulated_pods.node(pod), {entry["type"] for entry in _slurm_conditions(pod) if entry["status"] == "True"}
    hardware, count = world.hardware(host), int(requests(pod).get(GPU, 0.0))
    kind = pod["metadata"]["labels"].get(GRES, "")
    return ControlledNode(
        name=pod["metadata"]["name"],
        host=host,
        gres=f"gpu:{kind}:{count}" if count else "",
        gpus=min(count, world.host(host).gpus),
        memory=slurm_job_check.real_memory(world, host),
        cpus=hardware.cpus,
        state="drained" if "SlurmDrain" in true else "down*" if "SlurmNotResponding" in true else "idle",
        reason=_reason(world, pod) if "SlurmDrain" in true else "",
    )


ROLES = (Sunk,)
