"""Stage slurm: simulated Slinky charts and operator, slurmd pods and Slurm nodes, srun check (`steps/docs/facts/slurm.md`)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace

import yaml

from steps.contract import host_ranges
from workflows.rehearsal.simulator.api.api_kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NODES,
    PODS,
    SECRETS,
    STATEFUL_SETS,
    Obj,
    ObjectKind,
    Ref,
    annotations_of,
    custom,
    labels_of,
    ref,
)
from workflows.rehearsal.simulator.charts.chart_installers import ChartError, ChartRelease, chart
from workflows.rehearsal.simulator.charts.operators import has_ready_pod
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.scheduler import admits
from workflows.rehearsal.simulator.controllers.simulated_pods import (
    Behaviour,
    BlockedStart,
    Exit,
    LongRunning,
    blocked_by,
    check,
    environment,
    keep_log,
    pack,
    pod_program,
)
from workflows.rehearsal.simulator.stages.slurm import slurm_drains, slurm_job_check, slurm_qos, slurm_srun_check, slurm_sunk
from workflows.rehearsal.simulator.stages.slurm.slurm_controller import ControlledNode, SimulatedSlurm
from workflows.rehearsal.simulator.stages.slurm.slurm_foreign_pods import create_foreign_pods
from workflows.rehearsal.simulator.stages.slurm.slurm_gpu_monitor import write_monitor_conditions
from workflows.rehearsal.simulator.stages.slurm.slurm_job_check import CheckRun, SlurmSurroundings
from workflows.rehearsal.simulator.world import Changes, World

NODE_SETS = custom("slinky.slurm.net", "NodeSet")
NAME = "app.kubernetes.io/name"
STATE = "SlurmNodeState"
LOWER = "gres/gpu count reported lower than configured ({seen} < {configured})"


def slurmctld_answers(world: World) -> bool:
    """Return True if the StatefulSet of a Slurm controller has a ready pod."""
    return any(
        (stateful_set.get("status") or {}).get("readyReplicas") and stateful_set["metadata"]["name"].endswith("-controller")
        for stateful_set in world.objects(STATEFUL_SETS)
    )


def register(world: World, at: Ref) -> None:
    """Schedule the Slurm node states that a ready slurmd pod is to show as its conditions.

    A new slurmd registers with slurmctld 3 to 15 virtual seconds after it is ready; later changes of its states show at once.
    Nothing is scheduled if `at` is no ready slurmd pod, if slurmctld does not answer, or if the states are right already.
    """
    pod = world.find(PODS, at)
    if pod is None or labels_of(pod).get(NAME) != "slurmd" or not simulated_pods.ready(pod) or not slurmctld_answers(world):
        return
    states = [entry["type"].removeprefix(STATE) for entry in node_conditions(pod)]
    if states and world.fault("slurm_states_stale"):
        return
    if states != list(_states(world, pod)[0]):
        low, high = (0.0, 0.0) if states else (3.0, 15.0)
        world.later(f"slinky/{at.namespace}/{at.name}/register", low, high, functools.partial(_write_conditions, world, at))


def node_conditions(pod: Obj) -> list[Obj]:
    """Return those conditions of a slurmd pod that show the states of its Slurm node; empty until slurmctld knows the node."""
    return [entry for entry in pod.get("status", {}).get("conditions") or () if entry["type"].startswith(STATE)]


def _write_conditions(world: World, at: Ref) -> None:
    """Write the states of a Slurm node as conditions of its slurmd pod, each with the node's reason, as slurm-operator does."""
    pod = world.find(PODS, at)
    if pod is None or not simulated_pods.ready(pod):
        return
    states, reason = _states(world, pod)
    present = {entry["type"]: entry for entry in node_conditions(pod)}
    others = [entry for entry in pod["status"]["conditions"] if not entry["type"].startswith(STATE)]
    own = [
        {"type": STATE + state, "status": "True", "message": reason}
        | {"lastTransitionTime": present.get(STATE + state, {}).get("lastTransitionTime") or world.stamp()}
        for state in states
    ]
    world.patch_soon(PODS, pod, {"status": {"conditions": [*others, *own]}}, status=True)


def _states(world: World, pod: Obj) -> tuple[tuple[str, ...], str]:
    node, count = simulated_pods.node(pod), gres(world, pod).rpartition(":")[2]
    configured = int(count) if count.isdigit() else 0
    if world.fault("slurm_gres_lower_than_configured", node) and configured:
        return ("Idle", "Drain", "InvalidReg"), LOWER.format(seen=configured - 1, configured=configured)
    if world.fault("slurm_nodes_drained", node):
        return ("Idle", "Drain"), slurm_drains.LOW_MEMORY
    if reason := slurm_drains.reason_of(world, node) or slurm_drains.cordoned(world, node):
        return ("Idle", "Drain"), reason
    if world.fault("slurm_nodes_down", node):
        return ("Down", "NotResponding"), "Not responding"
    return ("Idle",), ""


def gres(world: World, pod: Obj) -> str:
    """Return the generic resources that a slurmd pod's NodeSet configures, such as `gpu:h200:8`; empty if there are none.

    slurmctld drops those whose type is not in GresTypes.
    """
    if "gpu" not in _settings(world).get("GresTypes", "").split(","):
        return ""
    owners = pod["metadata"].get("ownerReferences") or ()
    owner = next((entry["name"] for entry in owners if entry["kind"] == "NodeSet"), "")
    nodeset = world.find(NODE_SETS, owner, pod["metadata"]["namespace"])
    pairs = (pair.partition("=") for pair in (nodeset["spec"].get("extraConf") or "").split()) if nodeset else ()
    return next((value for key, _, value in pairs if key == "Gres"), "")


CONTROLLERS, REST_APIS, LOGIN_SETS, ACCOUNTINGS = (
    custom("slinky.slurm.net", kind) for kind in ("Controller", "RestApi", "LoginSet", "Accounting")
)
OPERATOR = "slinky"
SLINKY = "slinkyproject/"
"""Part of the addresses of Slinky's own charts."""
INSTANCE = "app.kubernetes.io/instance"
SECRET = "simulated/secret"
"""Annotation with the name of the Secret without which a pod's container is not created."""
HOSTNAME = "nodeset.slinky.slurm.net/pod-hostname"


# ---- charts --------------------------------------------------------------------------------------------------------------------


@chart("slurm-operator-crds")
def crds(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart slurm-operator-crds: the CustomResourceDefinitions of Slinky."""
    release.crds("slinky.slurm.net")


@chart("slurm-operator")
def operator(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart slurm-operator: the operator and its admission webhook."""
    release.deployment("slurm-operator")
    release.deployment("slurm-operator-webhook")


@chart("slurm")
def cluster(world: World, release: ChartRelease) -> None:
    """Install the simulated chart slurm: Secret, Controller, RestApi, LoginSets and NodeSets of a Slurm cluster.

    Charts of this name from other places than Slinky's are SUNK's. Raises ChartError if the operator's webhook has no ready pod.
    """
    if SLINKY not in release.source:
        slurm_sunk.install_cluster(release)
        return
    if world.served(NODE_SETS) and not has_ready_pod(world, OPERATOR, "slurm-operator-webhook"):
        raise ChartError(
            'INSTALLATION FAILED: Internal error occurred: failed calling webhook "controller.slinky.slurm.net": '
            'no endpoints available for service "slurm-operator-webhook"'
        )
    name = release.name
    release.put(SECRETS, {"metadata": {"name": f"{name}-auth-slurm"}, "data": {"slurm.key": "c2ltdWxhdGVk"}})
    lines = [f"{key}={value}" for key, value in release.value("controller.extraConfMap", {}).items()]
    conf = "".join(f"{line}\n" for line in (*lines, *_partition_lines(release.value("partitions", {}))))
    spec = {"clusterName": release.value("clusterName", ""), "extraConf": conf}
    release.put(CONTROLLERS, {"metadata": {"name": name}, "spec": spec})
    release.put(REST_APIS, {"metadata": {"name": name}, "spec": {"controllerRef": {"name": name}, "replicas": 1}})
    if release.value("accounting.enabled", False):
        storage = release.value("accounting.storageConfig", {})
        release.put(ACCOUNTINGS, {"metadata": {"name": name}, "spec": {"storageConfig": storage}})
    release.put(CONFIG_MAPS, {"metadata": {"name": f"{name}-config"}, "data": dict(release.value("configFiles", {}))})
    for key, values in release.value("loginsets", {}).items():
        spec = {"controllerRef": {"name": name}, "replicas": values.get("replicas", 1)}
        release.put(LOGIN_SETS, {"metadata": {"name": f"{name}-login-{key}"}, "spec": spec})
    for key, values in release.value("nodesets", {}).items():
        release.put(NODE_SETS, {"metadata": {"name": f"{name}-worker-{key}"}, "spec": _nodeset(world, name, values)})


def _partition_lines(partitions: Obj) -> Iterator[str]:
    """Yield the lines of slurm.conf that the chart writes for its partitions."""
    for name, values in partitions.items():
        if values.get("enabled", True):
            further = "".join(f" {key}={value}" for key, value in (values.get("configMap") or {}).items())
            yield f"PartitionName={name} Nodes={','.join(values.get('nodesets') or ())} State=UP{further}"


_OF_PODS: Obj = {"nodeSelector": {}, "tolerations": [], "volumes": []}
"""Fields of a NodeSet's pods that values set, and their values by default."""


def _nodeset(world: World, name: str, values: Obj) -> Obj:
    configured = values.get("extraConfMap") or {}
    conf = {key: ",".join(map(str, value if isinstance(value, list) else [value])) for key, value in configured.items()}
    if world.fault("slurm_gres_lower_than_hardware") and "Gres" in conf:
        conf["Gres"] = f"{conf['Gres'].rpartition(':')[0]}:4"
    pod = values.get("podSpec", {})
    return {
        "controllerRef": {"name": name},
        "scalingMode": values.get("scalingMode", "StatefulSet"),
        "extraConf": " ".join(f"{key}={value}" for key, value in conf.items()),
        "slurmd": {"resources": values.get("slurmd", {}).get("resources", {})},
        "template": {"spec": {key: pod.get(key, empty) for key, empty in _OF_PODS.items()}},
    }


# ---- operator ------------------------------------------------------------------------------------------------------------------


class Slinky:
    """Simulated slurm-operator and slurmctld: workloads, one slurmd pod on each selected node, and the states of Slurm nodes."""

    name = "slinky"
    kinds = (CONTROLLERS, REST_APIS, LOGIN_SETS, ACCOUNTINGS, NODE_SETS, STATEFUL_SETS, DEPLOYMENTS, PODS, NODES)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Create missing workloads and slurmd pods; schedule changed node states and the status of each NodeSet."""
        if not world.served(NODE_SETS) or not has_ready_pod(world, OPERATOR, "slurm-operator"):
            return
        _parts(world)
        create_foreign_pods(world)
        write_monitor_conditions(world)
        sets = list(world.objects(NODE_SETS))
        every = changed.concern(NODE_SETS, DEPLOYMENTS)
        names = [node["metadata"]["name"] for node in world.objects(NODES)] if every else [at.name for at in changed.refs(NODES)]
        for nodeset in sets:
            for name in names:
                _ensure_slurmd(world, nodeset, name)
        candidates = [ref(pod) for pod in world.objects(PODS)] if changed.concern(STATEFUL_SETS) else list(changed.refs(PODS))
        candidates += [_place(nodeset, name) for nodeset in sets for name in names]
        for at in dict.fromkeys(candidates):
            register(world, at)
        for nodeset in sets:
            at = ref(nodeset)
            world.later(f"slinky/{at.namespace}/{at.name}/status", 5, 10, functools.partial(_status, world, at))


def _parts(world: World) -> None:
    for controller in world.objects(CONTROLLERS):
        _workload(world, CONTROLLERS, controller, STATEFUL_SETS, f"{controller['metadata']['name']}-controller", "slurmctld")
    for api in world.objects(REST_APIS):
        _workload(world, REST_APIS, api, DEPLOYMENTS, f"{api['metadata']['name']}-restapi", "slurmrestd")
    for accounting in world.objects(ACCOUNTINGS):
        name = f"{accounting['metadata']['name']}-accounting"
        _workload(world, ACCOUNTINGS, accounting, STATEFUL_SETS, name, "slurmdbd", _secret_of(accounting))
    for login in world.objects(LOGIN_SETS):
        workload = _workload(world, LOGIN_SETS, login, DEPLOYMENTS, login["metadata"]["name"], "login")
        count = (workload.get("status") or {}).get("replicas", 0)
        world.patch(LOGIN_SETS, login, {"status": {"replicas": count}}, status=True)


def _secret_of(accounting: Obj) -> str:
    """Return the name of the Secret with the database's password, which slurmdbd's pod reads."""
    return str(accounting["spec"].get("storageConfig", {}).get("passwordKeyRef", {}).get("name", ""))


def _workload(world: World, kind: ObjectKind, owner: Obj, workload_kind: ObjectKind, name: str, app: str, secret: str = "") -> Obj:
    labels = {NAME: app, INSTANCE: owner["metadata"]["name"]}
    spec: Obj = {
        "replicas": owner["spec"].get("replicas", 1),
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": app, "image": f"simulated/{app}:26.05"}]}},
    }
    if secret:
        spec["template"]["metadata"] |= {"annotations": {SECRET: secret}}
    meta = {"name": name, "namespace": owner["metadata"]["namespace"], "labels": labels, "ownerReferences": [kind.owner(owner)]}
    return world.ensure(workload_kind, {"metadata": meta, "spec": spec})


def _ensure_slurmd(world: World, nodeset: Obj, node_name: str) -> None:
    """Create the slurmd pod of a NodeSet on a node that it selects and tolerates (scaling mode DaemonSet), if it is missing."""
    at, node, place = ref(nodeset), world.find(NODES, node_name), _place(nodeset, node_name)
    if node is None or not _wanted(nodeset, node) or world.find(PODS, place) is not None:
        return
    template, slurm_name = nodeset["spec"]["template"]["spec"], _slurm_name(node_name)
    labels = {NAME: "slurmd", INSTANCE: at.name, HOSTNAME: slurm_name, "app.kubernetes.io/component": "worker"}
    resources = nodeset["spec"]["slurmd"].get("resources") or {}
    spec = {
        "hostname": slurm_name,
        "tolerations": template.get("tolerations") or [],
        "volumes": template.get("volumes") or [],
        "affinity": _pinned(node_name),
        "containers": [{"name": "slurmd", "image": "simulated/slurmd:26.05", "resources": resources}],
    }
    meta = {"name": place.name, "namespace": at.namespace, "labels": labels, "ownerReferences": [NODE_SETS.owner(nodeset)]}
    world.create_soon(PODS, {"metadata": meta, "spec": spec})


def _slurm_name(node_name: str) -> str:
    """Return the name of the Slurm node on a node; the operator cuts it at the first dot."""
    return node_name.partition(".")[0]


def _place(nodeset: Obj, node_name: str) -> Ref:
    """Return namespace and name of the NodeSet's slurmd pod on a node."""
    at = ref(nodeset)
    return Ref(at.namespace, f"{at.name}-{simulated_pods.node_suffix(nodeset['metadata']['uid'], node_name)}")


def _wanted(nodeset: Obj, node: Obj) -> bool:
    template = nodeset["spec"]["template"]["spec"]
    spec = {"nodeSelector": template.get("nodeSelector") or {}, "tolerations": template.get("tolerations") or []}
    return not admits(node, spec)


def _pinned(node: str) -> Obj:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _status(world: World, at: Ref) -> None:
    nodeset = world.find(NODE_SETS, at)
    if nodeset is None:
        return
    own = world.owned(PODS, nodeset["metadata"]["uid"])
    ready = sum(simulated_pods.ready(pod) for pod in own)
    words = [{entry["type"].removeprefix(STATE) for entry in node_conditions(pod)} for pod in own]
    status = {
        "desired": sum(_wanted(nodeset, node) for node in world.objects(NODES)),
        "replicas": len(own),
        "updatedReplicas": len(own),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": len(own) - ready,
        "slurmIdle": sum("Idle" in states for states in words),
        "slurmAllocated": sum("Allocated" in states or "Mixed" in states for states in words),
        "slurmDown": sum("Down" in states for states in words),
        "slurmDrain": sum("Drain" in states for states in words),
        "observedGeneration": nodeset["metadata"].get("generation", 1),
    }
    world.patch(NODE_SETS, nodeset, {"status": status}, status=True)


ROLES = (Slinky, *slurm_sunk.ROLES)


blocked_by("slurmctld_crashes", NAME, "slurmctld", "back-off 5m0s restarting failed container=slurmctld")


@pod_program(NAME, "slurmdbd")
def slurmdbd(world: World, pod: Obj, _node: str) -> Behaviour:
    """Play slurmdbd: it starts once the Secret with its database's password exists, and ends if the database is not reached."""
    secret = annotations_of(pod).get(SECRET, "")
    if secret and world.find(SECRETS, secret, pod["metadata"]["namespace"]) is None:
        return BlockedStart(reason="CreateContainerConfigError", message=f'secret "{secret}" not found')
    if world.fault("slurm_database_unreachable"):
        message = "fatal: Can't connect to MySQL server on 'mariadb.slurm.svc:3306' (111)"
        return BlockedStart(reason="CrashLoopBackOff", message=f"back-off 5m0s restarting failed container=slurmdbd: {message}")
    return LongRunning()


@pod_program(NAME, "slurmd")
def slurmd(world: World, pod: Obj, node: str) -> Behaviour:
    """Play slurmd: it ends at its start if a GPU of gres.conf is no device, or if it looks for a systemd that its pod lacks."""
    if world.fault("slurmd_crashes", node):
        message = "fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory"
        return BlockedStart(reason="CrashLoopBackOff", message=message)
    text = _config_file(world, pod["metadata"]["namespace"], "cgroup.conf")
    if text and not re.search(r"(?im)^\s*IgnoreSystemd(OnFailure)?\s*=\s*(yes|true|up|1)\b", text):
        message = "error: cgroup_dbus_attach_to_scope: cannot connect to dbus system daemon"
        return BlockedStart(reason="CrashLoopBackOff", message=message)
    return LongRunning()


blocked_by(
    "slurm_webhook_down",
    "app",
    "slurm-operator-webhook",
    'secret "slurm-operator-webhook-cert" not found',
    reason="CreateContainerConfigError",
)


@check("srun")
def srun(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `srun`: report what sinfo shows, and the hosts and GPU counts that Slurm jobs saw.

    The report has the form that `workflows/stages/scripts/srun.sh` prints.
    """
    variables, space = environment(pod), pod["metadata"]["namespace"]
    nodes = _controlled_nodes(world, space)
    gpus = int(variables.get("GPUS", "0")) > 0
    text, exits = slurm_srun_check.report(world, nodes, answers=slurmctld_answers(world), gpus=gpus)
    if variables.get("ACCOUNTING"):
        lines, exits["accounting"] = _clusters(world, space)
        text = text.replace("@errors\n", f"@clusters\n{lines}@errors\n")
    message = {"node": node, "exits": exits, "packed": pack(text)}
    return Exit(message=message, seconds=25, effect=functools.partial(keep_log, world, pod, text))


def _granted(world: World, pod: Obj) -> int:
    """Return how many GPUs a job sees that asks for all that the Gres of its node has."""
    count = gres(world, pod).rpartition(":")[2]
    return min(int(count), world.host(simulated_pods.node(pod)).gpus) if count.isdigit() else 0


def _clusters(world: World, namespace: str) -> tuple[str, int]:
    """Return what sacctmgr prints of the clusters that slurmdbd knows, with its exit code.

    slurmctld registers its address once it reaches slurmdbd; fault `slurm_accounting_unregistered` keeps it from that.
    """
    accounting = next((item for item in world.objects(ACCOUNTINGS) if item["metadata"]["namespace"] == namespace), None)
    workload = accounting and world.find(STATEFUL_SETS, f"{accounting['metadata']['name']}-accounting", namespace)
    if not workload or not (workload.get("status") or {}).get("readyReplicas"):
        return "", 1
    controller: Obj = next(iter(world.objects(CONTROLLERS)), {"spec": {}})
    address = "" if world.fault("slurm_accounting_unregistered") else "10.43.0.61"
    return f"{controller['spec'].get('clusterName', '')}|{address}\n", 0


@check("slurm-jobs")
def slurm_jobs(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `slurm-jobs`: submit its jobs to a simulated slurmctld and report what that shows of them."""
    space = pod["metadata"]["namespace"]
    if not slurmctld_answers(world):
        text = "@ping\nSlurmctld(primary) at slurm-controller is DOWN\n"
    else:
        text = slurm_job_check.report(
            CheckRun(slurm=_slurm(world, space), around=_around(world, space), variables=environment(pod))
        )
    return Exit(message={"node": node, "packed": pack(text)}, seconds=45, effect=functools.partial(keep_log, world, pod, text))


def _slurm(world: World, namespace: str) -> SimulatedSlurm:
    """Return slurmctld with the nodes that have registered, the partitions of the Controller, and its faults."""
    pods, partitions = _slurmds(world, namespace), {}
    for name, pairs in _partitions(world).items():
        sets = pairs.get("Nodes", "").split(",")
        partitions[name] = tuple(node for node, pod in pods.items() if "ALL" in sets or _set_of(pod) in sets)
    nodes = slurm_job_check.with_stale(world, _controlled_nodes(world, namespace))
    for node in nodes:
        node.shared = node.name in slurm_job_check.shared_nodes(partitions, _sharing(world))
    faults = replace(slurm_job_check.faults(world), unconfined=not _confines(world, namespace))
    return SimulatedSlurm(nodes, partitions, world.now, faults)


def _confines(world: World, namespace: str) -> bool:
    """Return True if jobs see only their own devices, for which slurmd needs a plugin beside the line in cgroup.conf."""
    lines = _config_file(world, namespace, "cgroup.conf").splitlines()
    return "ConstrainDevices=yes" in lines and "task/cgroup" in _settings(world).get("TaskPlugin", "").split(",")


def _partitions(world: World) -> dict[str, dict[str, str]]:
    """Return partition → the pairs of its line in the Controller's configuration."""
    rows = ({key: value for key, _, value in (pair.partition("=") for pair in line.split())} for line in _lines(world))
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def _settings(world: World) -> dict[str, str]:
    """Return the keys of slurm.conf that the Controller sets for the whole cluster."""
    pairs = (line.partition("=") for line in _lines(world) if not line.startswith("PartitionName="))
    return {key: value for key, _, value in pairs}


def _lines(world: World) -> list[str]:
    controller: Obj = next(iter(world.objects(CONTROLLERS)), {"spec": {}})
    return (controller["spec"].get("extraConf") or "").splitlines()


def _sharing(world: World) -> dict[str, str]:
    return {name: row["OverSubscribe"] for name, row in _partitions(world).items() if "OverSubscribe" in row}


def _slurmds(world: World, namespace: str) -> dict[str, Obj]:
    """Return Slurm node → slurmd pod, for the pods whose nodes have registered."""
    pods = world.select(PODS, namespace, {NAME: "slurmd"})
    return {str(pod["spec"]["hostname"]): pod for pod in pods if node_conditions(pod)}


def _controlled_nodes(world: World, namespace: str) -> list[ControlledNode]:
    return [_controlled(world, name, pod) for name, pod in _slurmds(world, namespace).items()]


def _set_of(pod: Obj) -> str:
    """Return the key in the chart's values of the NodeSet that owns a slurmd pod."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((entry["name"].partition("-worker-")[2] for entry in owners if entry["kind"] == "NodeSet"), "")


def _controlled(world: World, name: str, pod: Obj) -> ControlledNode:
    host, words = simulated_pods.node(pod), {entry["type"].removeprefix(STATE) for entry in node_conditions(pod)}
    state = "drained" if "Drain" in words else "down*" if "Down" in words else "idle"
    hardware, kind = world.hardware(host), gres(world, pod)
    return ControlledNode(
        name=name,
        host=host,
        gres=kind,
        gpus=_granted(world, pod),
        memory=slurm_job_check.real_memory(world, host),
        cpus=hardware.cpus,
        state=state,
        reason=node_conditions(pod)[0].get("message", "") if state != "idle" else "",
    )


def _around(world: World, namespace: str) -> SlurmSurroundings:
    lines, code = _clusters(world, namespace)
    hosts = {simulated_pods.node(pod): simulated_pods.node(pod) for pod in world.select(PODS, namespace, {NAME: "slurmd"})}
    return SlurmSurroundings(
        metrics=slurm_job_check.served_metrics(_controlled_nodes(world, namespace), "slurm_nodes"),
        accounting=code == 0 and not lines.rstrip().endswith("|"),
        qos=slurm_qos.known(world, namespace),
        topology=slurm_job_check.running_topology(world, _tree(world, _leaves(_topology_file(world, namespace)))),
        topology_file=slurm_job_check.topology_file(world, _topology_file(world, namespace), _leaves),
        sharing=slurm_job_check.shown_sharing(world, _sharing(world)),
        home_shared=not world.fault("slurm_home_not_shared"),
        login=any(item["metadata"]["namespace"] == namespace for item in world.objects(LOGIN_SETS)),
        memory=slurm_job_check.machine_memory(world, hosts),
    )


TOPOLOGY = "topology.slinky.slurm.net/spec"
"""Annotation of a node with its place in Slurm's topologies."""


def _tree(world: World, leaves: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the tree as slurmctld has it: the operator leaves a node only where the annotation of its Kubernetes node has it."""
    places = {_slurm_name(node["metadata"]["name"]): annotations_of(node).get(TOPOLOGY, "") for node in world.objects(NODES)}
    return {leaf: tuple(name for name in names if places.get(name) == f"tree:{leaf}") for leaf, names in leaves.items()}


def _topology_file(world: World, namespace: str) -> str:
    """Return topology.yaml of the chart's configuration files; empty without one."""
    return _config_file(world, namespace, "topology.yaml")


def _config_file(world: World, namespace: str, name: str) -> str:
    """Return a file in the ConfigMap that the chart writes for its configuration files; empty without one."""
    maps = (item for item in world.objects(CONFIG_MAPS) if item["metadata"]["namespace"] == namespace)
    return next((str(item["data"][name]) for item in maps if name in (item.get("data") or {})), "")


def _leaves(text: str) -> dict[str, tuple[str, ...]]:
    """Return leaf switch → nodes of a topology.yaml."""
    trees = yaml.safe_load(text or "[]")
    switches = [switch for tree in trees for switch in tree.get("tree", {}).get("switches", ()) if switch.get("nodes")]
    return {str(switch["switch"]): tuple(host_ranges.expand(str(switch["nodes"]))) for switch in switches}
