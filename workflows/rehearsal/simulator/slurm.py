"""Slurm on Kubernetes: Slinky's charts, and its operator with its workloads, node pods and status (gpu_stack §7.2)."""

from __future__ import annotations

import functools
from typing import Any

from workflows.rehearsal.simulator import pods, slurm_check
from workflows.rehearsal.simulator.charts import ChartError, Release, chart
from workflows.rehearsal.simulator.kinds import DEPLOYMENTS, NODES, PODS, SECRETS, STATEFUL_SETS, Kind, Obj, Ref, custom, ref
from workflows.rehearsal.simulator.operands import runs
from workflows.rehearsal.simulator.placement import admits
from workflows.rehearsal.simulator.role import Changed
from workflows.rehearsal.simulator.slurm_nodes import NAME, NODE_SETS, STATE, register, told
from workflows.rehearsal.simulator.world import World

CONTROLLERS, REST_APIS, LOGIN_SETS = (custom("slinky.slurm.net", kind) for kind in ("Controller", "RestApi", "LoginSet"))
OPERATOR = "slinky"
INSTANCE = "app.kubernetes.io/instance"
HOSTNAME = "nodeset.slinky.slurm.net/pod-hostname"


# ---- charts --------------------------------------------------------------------------------------------------------------------


@chart("slurm-operator-crds")
def crds(_world: World, release: Release) -> None:
    """The kinds alone."""
    release.crds("slinky.slurm.net")


@chart("slurm-operator")
def operator(_world: World, release: Release) -> None:
    """The operator and its admission webhook."""
    release.deployment("slurm-operator")
    release.deployment("slurm-operator-webhook")


@chart("slurm")
def cluster(world: World, release: Release) -> None:
    """Resources of which the operator makes a cluster; its webhook must answer, or the API server refuses them."""
    if world.served(NODE_SETS) and not runs(world, OPERATOR, "slurm-operator-webhook"):
        raise ChartError(
            'INSTALLATION FAILED: Internal error occurred: failed calling webhook "controller.slinky.slurm.net": '
            'no endpoints available for service "slurm-operator-webhook"'
        )
    name = release.name
    release.put(SECRETS, {"metadata": {"name": f"{name}-auth-slurm"}, "data": {"slurm.key": "c2ltdWxhdGVk"}})
    release.put(CONTROLLERS, {"metadata": {"name": name}, "spec": {"clusterName": release.value("clusterName", "")}})
    release.put(REST_APIS, {"metadata": {"name": name}, "spec": {"controllerRef": {"name": name}, "replicas": 1}})
    for key, values in release.value("loginsets", {}).items():
        spec = {"controllerRef": {"name": name}, "replicas": values.get("replicas", 1)}
        release.put(LOGIN_SETS, {"metadata": {"name": f"{name}-login-{key}"}, "spec": spec})
    for key, values in release.value("nodesets", {}).items():
        release.put(NODE_SETS, {"metadata": {"name": f"{name}-worker-{key}"}, "spec": _nodeset(world, name, values)})


def _nodeset(world: World, name: str, values: Obj) -> Obj:
    conf = {key: ",".join(map(str, value if isinstance(value, list) else [value])) for key, value in _conf(values).items()}
    if world.fault("slurm_gres_lower_than_hardware") and "Gres" in conf:
        conf["Gres"] = f"{conf['Gres'].rpartition(':')[0]}:4"
    pod = values.get("podSpec", {})
    return {
        "controllerRef": {"name": name},
        "scalingMode": values.get("scalingMode", "StatefulSet"),
        "extraConf": " ".join(f"{key}={value}" for key, value in conf.items()),
        "slurmd": {"resources": values.get("slurmd", {}).get("resources", {})},
        "template": {"spec": {"nodeSelector": pod.get("nodeSelector", {}), "tolerations": pod.get("tolerations", [])}},
    }


def _conf(values: Obj) -> dict[str, Any]:
    found = values.get("extraConfMap") or {}
    return dict(found)


# ---- operator ------------------------------------------------------------------------------------------------------------------


class Slinky:
    """Plays slurm-operator and slurmctld: workloads, one slurmd on each node, what Slurm says of the nodes, status."""

    name = "slinky"
    kinds = (CONTROLLERS, REST_APIS, LOGIN_SETS, NODE_SETS, STATEFUL_SETS, DEPLOYMENTS, PODS, NODES)

    def reconcile(self, world: World, changed: Changed) -> None:
        """Make what is missing, let new slurmds register, and look at the counts some seconds later."""
        if not world.served(NODE_SETS) or not runs(world, OPERATOR, "slurm-operator"):
            return
        _parts(world)
        sets = list(world.objects(NODE_SETS))
        every = changed.everything or bool(changed.refs(NODE_SETS) or changed.refs(DEPLOYMENTS))
        names = [node["metadata"]["name"] for node in world.objects(NODES)] if every else [at.name for at in changed.refs(NODES)]
        for nodeset in sets:
            for name in names:
                _slurmd(world, nodeset, name)
        looked = changed.everything or bool(changed.refs(STATEFUL_SETS))
        told = [ref(pod) for pod in world.objects(PODS)] if looked else list(changed.refs(PODS))
        told += [_place(nodeset, name) for nodeset in sets for name in names]
        for at in dict.fromkeys(told):
            register(world, at)
        for nodeset in sets:
            at = ref(nodeset)
            world.later(f"slinky/{at.namespace}/{at.name}/status", 5, 10, functools.partial(_status, world, at))


def _parts(world: World) -> None:
    for controller in world.objects(CONTROLLERS):
        _workload(world, CONTROLLERS, controller, STATEFUL_SETS, f"{controller['metadata']['name']}-controller", "slurmctld")
    for api in world.objects(REST_APIS):
        _workload(world, REST_APIS, api, DEPLOYMENTS, f"{api['metadata']['name']}-restapi", "slurmrestd")
    for login in world.objects(LOGIN_SETS):
        made = _workload(world, LOGIN_SETS, login, DEPLOYMENTS, login["metadata"]["name"], "login")
        count = (made.get("status") or {}).get("replicas", 0)
        world.patch(LOGIN_SETS, login, {"status": {"replicas": count}}, status=True)


def _workload(world: World, kind: Kind, owner: Obj, made: Kind, name: str, app: str) -> Obj:
    labels = {NAME: app, INSTANCE: owner["metadata"]["name"]}
    spec: Obj = {
        "replicas": owner["spec"].get("replicas", 1),
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": app, "image": f"simulated/{app}:26.05"}]}},
    }
    meta = {"name": name, "namespace": owner["metadata"]["namespace"], "labels": labels, "ownerReferences": [kind.owner(owner)]}
    return world.ensure(made, {"metadata": meta, "spec": spec})


def _slurmd(world: World, nodeset: Obj, node_name: str) -> None:
    """One pod on each node that the set's selector takes and whose taints it tolerates (scaling mode DaemonSet)."""
    at, node = ref(nodeset), world.find(NODES, node_name)
    if node is None or not _wanted(nodeset, node):
        return
    name = _place(nodeset, node_name).name
    if world.find(PODS, name, at.namespace) is not None:
        return
    template = nodeset["spec"]["template"]["spec"]
    labels = {NAME: "slurmd", INSTANCE: at.name, HOSTNAME: node_name, "app.kubernetes.io/component": "worker"}
    spec = {
        "hostname": node_name,
        "tolerations": template.get("tolerations") or [],
        "affinity": _pinned(node_name),
        "containers": [
            {"name": "slurmd", "image": "simulated/slurmd:26.05", "resources": nodeset["spec"]["slurmd"].get("resources") or {}}
        ],
    }
    owners = [NODE_SETS.owner(nodeset)]
    meta = {"name": name, "namespace": at.namespace, "labels": labels, "ownerReferences": owners}
    world.create_soon(PODS, {"metadata": meta, "spec": spec})


def _place(nodeset: Obj, node_name: str) -> Ref:
    """Where the set's pod of a node is."""
    at = ref(nodeset)
    return Ref(at.namespace, f"{at.name}-{pods.suffix(nodeset['metadata']['uid'], node_name)}")


def _wanted(nodeset: Obj, node: Obj) -> bool:
    template = nodeset["spec"]["template"]["spec"]
    spec = {"nodeSelector": template.get("nodeSelector") or {}, "tolerations": template.get("tolerations") or []}
    return not admits(node, spec)


def _pinned(node: str) -> Obj:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    terms = [{"matchFields": fields}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _status(world: World, at: Ref) -> None:
    nodeset = world.find(NODE_SETS, at.name, at.namespace)
    if nodeset is None:
        return
    own = [pod for pod in world.objects(PODS) if pods.owner_uid(pod) == nodeset["metadata"]["uid"]]
    ready = sum(pods.ready(pod) for pod in own)
    words = [{entry["type"].removeprefix(STATE) for entry in told(pod)} for pod in own]
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


PROGRAMS = slurm_check
"""What the cluster's pods do."""

ROLES = (Slinky,)
