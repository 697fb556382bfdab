"""Pods of the GPU Operator's DaemonSets and of the CUDA check: each waits for the operand that it depends on."""

from __future__ import annotations

from typing import Any

from workflows.rehearsal.simulator.api_kinds import NODES, Obj
from workflows.rehearsal.simulator.gpu_operator_nodes import DRIVER, PLUGIN, TOOLKIT, driver_broken, gpu_uuid, visible_gpus
from workflows.rehearsal.simulator.pod_programs import Behaviour, BlockedStart, Exit, LongRunning, check, pod_program
from workflows.rehearsal.simulator.world import World

VALIDATIONS = ("driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation")
"""The validator's init containers in order (https://github.com/NVIDIA/gpu-operator, cmd/nvidia-validator)."""

CRASH = "Could not resolve Linux kernel version"


def _progress(world: World, node: str) -> dict[str, str]:
    """Return a node's progress annotations. In large fleets an unsampled node counts as done, else its pods became objects."""
    if not world.sampled(node) and not driver_broken(world, node) and not world.fault("fabric_manager_missing", node):
        return {DRIVER: "ready", TOOLKIT: "ready", PLUGIN: "ready"}
    node_object = world.find(NODES, node)
    return (node_object["metadata"].get("annotations") or {}) if node_object else {}


@pod_program("app", "nvidia-driver-daemonset")
def driver(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play the driver container, which builds and loads the driver."""
    if driver_broken(world, node):
        return BlockedStart(reason="CrashLoopBackOff", message=CRASH, log=f"{CRASH}\n")
    return LongRunning() if DRIVER in _progress(world, node) else BlockedStart(init="k8s-driver-manager")


pod_program("app", "nvidia-gpu-driver-ubuntu24.04-6c4d7f9b8")(driver)


@pod_program("app", "nvidia-container-toolkit-daemonset")
def toolkit(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play the container toolkit, which waits for the driver and then configures containerd."""
    return LongRunning() if DRIVER in _progress(world, node) else BlockedStart(init="driver-validation")


def _after_toolkit(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play a pod that needs the NVIDIA runtime."""
    return LongRunning() if TOOLKIT in _progress(world, node) else BlockedStart(init="toolkit-validation")


for _name in (
    "nvidia-device-plugin-daemonset",
    "gpu-feature-discovery",
    "nvidia-dcgm",
    "nvidia-dcgm-exporter",
    "nvidia-mig-manager",
    "nvidia-dra-driver-kubelet-plugin",
    "nvidia-dcgm-exporter-dra",
):
    pod_program("app", _name)(_after_toolkit)


@pod_program("app", "nvidia-operator-validator")
def validator(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play the validator: the init container that is stuck names the failed layer. It does not check the number of GPUs."""
    done = _progress(world, node)
    for step, mark in (("driver-validation", DRIVER), ("toolkit-validation", TOOLKIT)):
        if mark not in done:
            return BlockedStart(init=step)
    if world.fault("fabric_manager_missing", node):
        text = "Failed to allocate device vector A (error code system not yet initialized)!"
        return BlockedStart(init="cuda-validation", reason="CrashLoopBackOff", message=text, log=f"{text}\n")
    if PLUGIN not in done:
        return BlockedStart(init="plugin-validation")
    return LongRunning(log="all validations are successful\n")


@pod_program("app", "nvidia-dra-validator")
def dra_validator(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play the validator of the DRA stack."""
    return LongRunning() if PLUGIN in _progress(world, node) else BlockedStart(init="driver-validation")


@check("cuda-smoke")
def cuda_smoke(world: World, _pod: Obj, node: str) -> Behaviour:
    """Report what `workflows/stages/scripts/cuda_smoke.sh` reports."""
    node_object = world.find(NODES, node)
    report: dict[str, Any] = {"node": node, "uuids": [], "devices": 0, "passed": 0, "error": ""}
    if node_object is None or TOOLKIT not in (node_object["metadata"].get("annotations") or {}):
        return Exit(message=report | {"error": "nvidia-smi: not found"})
    count = visible_gpus(world, node)
    passed = 0 if world.fault("cuda_fails", node) else count
    error = "" if passed else f"{gpu_uuid(world, node, 0)}: CUDA driver version is insufficient for CUDA runtime version"
    uuids = [gpu_uuid(world, node, number) for number in range(count)]
    lines = [f"{device}: {'Test PASSED' if passed else error}" for device in uuids]
    return Exit(
        message=report | {"uuids": uuids, "devices": count, "passed": passed, "error": error}, log="\n".join(lines), seconds=12
    )
