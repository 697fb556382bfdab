"""Stage sharing: device plugin, MIG manager and DRA driver of simulated nodes react to the labels that divide GPUs."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from workflows.rehearsal.simulator import virtual_clock
from workflows.rehearsal.simulator.api.api_kinds import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_SLICES,
    Obj,
    annotations_of,
    labels_of,
    ref,
)
from workflows.rehearsal.simulator.charts.chart_installers import ChartRelease, chart
from workflows.rehearsal.simulator.charts.operators import fleet_nodes
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.scheduler import admits, container_requests
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, Exit, check, environment
from workflows.rehearsal.simulator.stages.gpu_operator import gpu_shares
from workflows.rehearsal.simulator.stages.gpu_operator.gpu_operator_nodes import (
    CLUSTER_POLICIES,
    DISCOVERED,
    GPU,
    resource_slice,
    visible_gpus,
)
from workflows.rehearsal.simulator.stages.gpu_operator.gpu_shares import (
    SHARED,
    AdvertisedResources,
    mig_shape,
    parse_shares,
    share_shape,
    whole_shape,
)
from workflows.rehearsal.simulator.world import Changes, World

NAMESPACE = "gpu-operator"
KUBELET_PLUGIN = "nvidia-dra-driver-gpu-kubelet-plugin"
DONE = "simulated/sharing"
"""Annotation with the sharing configuration that a node has applied, so that it survives a restart of the simulator."""
STRAY = "vendor-shares"
HOLD_SECONDS = 60.0
LEAST_HOLD = 1.0
"""Shortest time in virtual seconds for which a pod holds its devices: the clock of its report counts whole seconds."""
REFUSAL = "Allocate failed due to rpc error: request for {} too large: maximum request size for shared resources is 1; found 2"


@chart("dra-driver")
def dra_driver(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart of NVIDIA's DRA driver: controller, kubelet plugin on labelled nodes, DeviceClasses."""
    release.deployment("nvidia-dra-driver-gpu-controller")
    tolerations = release.value("kubeletPlugin.tolerations", [])
    release.daemon_set(KUBELET_PLUGIN, selector={gpu_shares.DRA: "true"}, tolerations=tolerations)
    for name in ("gpu.nvidia.com", "mig.nvidia.com"):
        release.put(DEVICE_CLASSES, {"metadata": {"name": name}, "spec": {}})


class SharingController:
    """Simulated reaction to sharing labels on nodes, and the kubelets' refusal of pods that ask for two shares."""

    name = "sharing"
    kinds = (NODES, PODS, CLUSTER_POLICIES, CONFIG_MAPS, DEVICE_CLASSES)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Schedule the configuration that each changed node's labels ask for, and check each changed pod."""
        policy = _policy(world)
        if policy is not None:
            _stray(world, policy)
        for node in fleet_nodes(world, changed, CLUSTER_POLICIES, DEVICE_CLASSES, CONFIG_MAPS):
            if DISCOVERED in annotations_of(node):
                _look(world, policy, node)
        for pod in filter(None, (world.find(PODS, at) for at in changed.refs(PODS))):
            _admit(world, policy, pod)


def _policy(world: World) -> Obj | None:
    return next(iter(world.objects(CLUSTER_POLICIES)), None) if world.served(CLUSTER_POLICIES) else None


def _stray(world: World, policy: Obj) -> None:
    """Play the fault `stray_sharing_config`: point the ClusterPolicy to a foreign configuration that divides every GPU into ten."""
    if not world.fault("stray_sharing_config") or policy["spec"].get("devicePlugin", {}).get("config", {}).get("name") == STRAY:
        return
    text = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 10\n"
    world.create(CONFIG_MAPS, {"metadata": {"name": STRAY, "namespace": NAMESPACE}, "data": {"any": text}})
    world.patch(CLUSTER_POLICIES, policy, {"spec": {"devicePlugin": {"config": {"name": STRAY, "default": "any"}}}})


# ---- nodes ---------------------------------------------------------------------------------------------------------------------


def _look(world: World, policy: Obj | None, node: Obj) -> None:
    name, labels = node["metadata"]["name"], labels_of(node)
    if world.fault("sharing_labels_left", name) and labels.get(gpu_shares.REPLICAS) == "1":
        left = {gpu_shares.REPLICAS: "4", gpu_shares.STRATEGY: "time-slicing"}
        world.patch(NODES, node, {"metadata": {"labels": left}})
    if world.fault("sharing_of_another_group", name) and labels.get(gpu_shares.PLUGIN_CONFIG) == "whole" and policy is not None:
        other = next((key for key in _config_map(world, policy) if key != "whole"), "")
        world.patch(NODES, node, {"metadata": {"labels": {gpu_shares.PLUGIN_CONFIG: other}}})
        return
    if world.fault("mig_config_by_hand", name):
        # the MIG manager hangs, so that the state stays that of before
        if labels.get(gpu_shares.MIG_CONFIG) == "all-disabled":
            world.patch(NODES, node, {"metadata": {"labels": {gpu_shares.MIG_CONFIG: "all-balanced"}}})
        return
    wanted = _wanted(labels)
    ignored = wanted.startswith("shares:") and world.fault("time_slicing_without_effect", name)
    if ignored or wanted == annotations_of(node).get(DONE, "whole"):
        return
    slow = wanted.startswith("mig:") and policy is not None
    if slow and labels.get(gpu_shares.MIG_STATE) not in ("pending", "failed"):
        world.patch(NODES, node, {"metadata": {"labels": {gpu_shares.MIG_STATE: "pending"}}})
    if slow and world.fault("mig_pending_for_ever", name):
        return
    if slow and world.fault("mig_waits_for_a_client", name):
        world.later(f"sharing/{name}/refused", 30.0, 60.0, functools.partial(_refuse_mig, world, name))
        return
    low, high = (60.0, 180.0) if slow else (5.0, 20.0)
    world.later(f"sharing/{name}/{wanted}", low, high, functools.partial(_apply, world, name, wanted))


_BUS = "00000000:07:00.0"
_CLIENT = f"""time="2026-11-28T10:00:01Z" level=info msg="Applying the MIG mode change from the selected config to the node"
Warning: MIG mode is in pending enable state for GPU {_BUS}:In use by another client
{_BUS} is currently being used by one or more other processes (e.g. CUDA application or a monitoring application such as another \
instance of nvidia-smi). Please first kill all processes using the device and retry the command or reboot the system to make MIG \
mode effective.
time="2026-11-28T10:00:09Z" level=error msg="Error: error setting MIGMode: error resetting all GPUs: exit status 255"
"""
"""Log of nvidia-mig-manager on a node where a monitoring agent holds the GPU (NVIDIA/mig-parted, nvidia-smi)."""


def _refuse_mig(world: World, name: str) -> None:
    """Set a node's MIG state to failed, with the reason in the log of the MIG manager there."""
    managers = world.select(PODS, NAMESPACE, {"app": "nvidia-mig-manager"})
    manager = next((pod for pod in managers if simulated_pods.node(pod) == name), None)
    node = world.find(NODES, name)
    if manager is None or node is None or labels_of(node).get(gpu_shares.MIG_STATE) == "failed":
        return
    world.log(manager, manager["spec"]["containers"][0]["name"], _CLIENT)
    world.patch(NODES, node, {"metadata": {"labels": {gpu_shares.MIG_STATE: "failed"}}})


def _wanted(labels: dict[str, str]) -> str:
    """Return the sharing that a node's labels ask for: `whole`, `dra`, `mig:CONFIG` or `shares:KEY`."""
    if labels.get(gpu_shares.DRA) == "true":
        return "dra"
    if labels.get(gpu_shares.MIG_CONFIG, "all-disabled") != "all-disabled":
        return f"mig:{labels[gpu_shares.MIG_CONFIG]}"
    key = labels.get(gpu_shares.PLUGIN_CONFIG, "whole")
    return "whole" if key == "whole" else f"shares:{key}"


def _apply(world: World, name: str, wanted: str) -> None:
    """Write the resources and labels of the sharing `wanted` on a node, unless its labels ask for another one by now.

    A configuration that does not exist changes nothing.
    """
    node, policy = world.find(NODES, name), _policy(world)
    if node is None or _wanted(labels_of(node)) != wanted:
        return
    if wanted == "dra":
        plugin = next((daemon for daemon in world.objects(DAEMON_SETS) if daemon["metadata"]["name"] == KUBELET_PLUGIN), None)
        if world.find(DEVICE_CLASSES, "gpu.nvidia.com") is None:
            return
        if plugin is not None and admits(node, plugin["spec"]["template"]["spec"], daemon=True):
            return
        world.ensure(RESOURCE_SLICES, resource_slice(world, name))
        world.patch_soon(NODES, node, {"metadata": {"annotations": {DONE: wanted}}})
        return
    shape = _shape(world, policy, name, wanted)
    if shape is not None:
        amounts: dict[str, Any] = {key: None for key in _resources(node) if key not in shape.resources} | shape.resources
        world.patch_soon(NODES, node, {"metadata": {"labels": shape.labels, "annotations": {DONE: wanted}}})
        world.patch_soon(NODES, ref(node), {"status": {"capacity": amounts, "allocatable": amounts}}, status=True)


def _resources(node: Obj) -> list[str]:
    """Return the names of all GPU resources that a node advertises now, because a merge patch must name those to remove."""
    return [key for key in node["status"].get("capacity") or {} if key in (GPU, SHARED) or key.startswith("nvidia.com/mig-")]


def _shape(world: World, policy: Obj | None, name: str, wanted: str) -> AdvertisedResources | None:
    hardware, gpus = world.hardware(name), visible_gpus(world, name)
    if wanted == "whole":
        return whole_shape(hardware.product, gpus)
    if policy is None:
        return None
    if wanted.startswith("mig:"):
        if world.fault("mig_false_success", name):
            return whole_shape(hardware.product, gpus)
        strategy = policy["spec"].get("mig", {}).get("strategy", "single")
        return mig_shape(hardware.product, gpus, wanted.removeprefix("mig:"), strategy)
    config = parse_shares(_config(world, policy, wanted.removeprefix("shares:")))
    return share_shape(hardware.product, gpus, config) if config else None


def _config(world: World, policy: Obj, key: str) -> str:
    return _config_map(world, policy).get(key, "")


def _config_map(world: World, policy: Obj) -> dict[str, str]:
    """Return the configurations in the ConfigMap that the ClusterPolicy names for the device plugin, by key."""
    name = policy["spec"].get("devicePlugin", {}).get("config", {}).get("name", "")
    config_map = world.find(CONFIG_MAPS, name, NAMESPACE)
    return {key: str(text) for key, text in ((config_map or {}).get("data") or {}).items()}


# ---- pods ----------------------------------------------------------------------------------------------------------------------


def _admit(world: World, policy: Obj | None, pod: Obj) -> None:
    """Fail a Pending pod that asks for more than one share, as the kubelet does when the device plugin refuses it.

    With `failRequestsGreaterThanOne` the pod fails before any container starts:
    https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html
    """
    if world.fault("scheduler_ignores_gpus") and not simulated_pods.node(pod) and simulated_pods.phase(pod) == "Pending":
        _refuse_unplaced(world, pod)
        return
    node = world.find(NODES, simulated_pods.node(pod))
    if policy is None or node is None or simulated_pods.phase(pod) != "Pending" or world.fault("two_shares_granted"):
        return
    wanted = annotations_of(node).get(DONE, "whole")
    config = parse_shares(_config(world, policy, wanted.removeprefix("shares:"))) if wanted.startswith("shares:") else None
    # the device plugin sees one container at a time
    wanted_units = (amounts for container in pod["spec"]["containers"] for amounts in container_requests(container).items())
    requested = {name: amount for name, amount in wanted_units if name in (GPU, SHARED) and amount > 1}
    if config is not None and config.refuse_two and requested:
        message = REFUSAL.format(next(iter(requested)))
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message, "startTime": world.stamp()}
        world.patch(PODS, pod, {"status": status}, status=True)


def _refuse_unplaced(world: World, pod: Obj) -> None:
    """Fail a pod that waits for a GPU beside others of its check, as the kubelet does if the scheduler placed it all the same."""
    check_name = labels_of(pod).get("bringup/check")
    others = (other for other in world.objects(PODS) if labels_of(other).get("bringup/check") == check_name)
    if check_name != "sharing-limit" or not any(simulated_pods.node(other) for other in others):
        return
    message = "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0"
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": world.stamp()}
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message, "startTime": world.stamp()}
    world.patch(PODS, pod, {"status": status | {"conditions": [placed]}}, status=True)


@check("sharing")
def hold(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `sharing`: hold a GPU unit for a minute and report its UUID, and when that began and ended.

    Shares are on one GPU; MIG instances and whole GPUs are separate devices. The report has the form that
    `workflows/stages/scripts/sharing_hold.sh` prints.
    """
    wanted = world.node_annotations(node).get(DONE, "whole")
    number = environment(pod).get("NVIDIA_VISIBLE_DEVICES", "0" if pod["metadata"]["name"].startswith("sharing-first") else "1")
    place = 0 if wanted.startswith("shares:") else int(number)
    uuids = [gpu_shares.device_uuid(node, 0, place) if wanted.startswith("mig:") else gpu_shares.device_uuid(node, place)]
    if world.fault("pods_see_every_gpu"):
        uuids = [gpu_shares.device_uuid(node, gpu) for gpu in range(visible_gpus(world, node))]
    started = simulated_pods.started_at(pod)
    begin = int(virtual_clock.parse_stamp(started) if started else world.now)
    end = Exit(seconds=float(environment(pod).get("SECONDS_TO_HOLD", HOLD_SECONDS)), least=LEAST_HOLD)
    times = {"begin": begin, "end": begin + int(end.duration(world.delay_scale))}
    report: dict[str, Any] = {"node": node, "uuids": uuids, "passed": len(uuids), "error": "", **times}
    if world.fault("cuda_never_runs", node):
        report |= {"passed": 0, "error": f"{uuids[0]}: all CUDA-capable devices are busy or unavailable"}
    return msgspec.structs.replace(end, message=report, log="\n".join(uuids))


@check("sharing-limit")
def hold_one_of_all(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `sharing-limit`, whose pods take all units of a node and one more."""
    return hold(world, pod, node)


ROLES = (SharingController,)
