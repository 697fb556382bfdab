"""The pods of the GPU Operator's DaemonSets, and of the CUDA check: each waits for the part that it depends on."""

from __future__ import annotations

from typing import Any

from workflows.rehearsal.simulator.gpu_operator_nodes import DRIVER, PLUGIN, TOOLKIT, driver_broken, uuid, visible_gpus
from workflows.rehearsal.simulator.kinds import NODES, Obj
from workflows.rehearsal.simulator.programs import Behaviour, Exit, Run, Stuck, check, pods
from workflows.rehearsal.simulator.world import World

VALIDATIONS = ("driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation")
"""The validator's init containers, in order (gpu_stack §1.4)."""

CRASH = "Could not resolve Linux kernel version"


def _progress(world: World, node: str) -> dict[str, str]:
    """How far a node is. In large fleets a node without pod objects counts as done, or its pods would have to be objects."""
    if not world.sampled(node) and not driver_broken(world, node) and not world.fault("fabric_manager_missing", node):
        return {DRIVER: "ready", TOOLKIT: "ready", PLUGIN: "ready"}
    found = world.find(NODES, node)
    return (found["metadata"].get("annotations") or {}) if found else {}


@pods("app", "nvidia-driver-daemonset")
def driver(world: World, _pod: Obj, node: str) -> Behaviour:
    """Builds and loads the driver."""
    if driver_broken(world, node):
        return Stuck(reason="CrashLoopBackOff", message=CRASH, log=f"{CRASH}\n")
    return Run() if DRIVER in _progress(world, node) else Stuck(init="k8s-driver-manager")


pods("app", "nvidia-gpu-driver-ubuntu24.04-6c4d7f9b8")(driver)


@pods("app", "nvidia-container-toolkit-daemonset")
def toolkit(world: World, _pod: Obj, node: str) -> Behaviour:
    """Waits for the driver, then configures containerd."""
    return Run() if DRIVER in _progress(world, node) else Stuck(init="driver-validation")


def _after_toolkit(world: World, _pod: Obj, node: str) -> Behaviour:
    """Everything that needs the NVIDIA runtime."""
    return Run() if TOOLKIT in _progress(world, node) else Stuck(init="toolkit-validation")


for _name in (
    "nvidia-device-plugin-daemonset",
    "gpu-feature-discovery",
    "nvidia-dcgm",
    "nvidia-dcgm-exporter",
    "nvidia-mig-manager",
    "nvidia-dra-driver-kubelet-plugin",
    "nvidia-dcgm-exporter-dra",
):
    pods("app", _name)(_after_toolkit)


@pods("app", "nvidia-operator-validator")
def validator(world: World, _pod: Obj, node: str) -> Behaviour:
    """The init container that is stuck names the layer (gpu_stack §1.4). It does not check the number of GPUs."""
    done = _progress(world, node)
    for step, mark in (("driver-validation", DRIVER), ("toolkit-validation", TOOLKIT)):
        if mark not in done:
            return Stuck(init=step)
    if world.fault("fabric_manager_missing", node):
        text = "Failed to allocate device vector A (error code system not yet initialized)!"
        return Stuck(init="cuda-validation", reason="CrashLoopBackOff", message=text, log=f"{text}\n")
    if PLUGIN not in done:
        return Stuck(init="plugin-validation")
    return Run(log="all validations are successful\n")


@pods("app", "nvidia-dra-validator")
def dra_validator(world: World, _pod: Obj, node: str) -> Behaviour:
    """The validator of the DRA stack."""
    return Run() if PLUGIN in _progress(world, node) else Stuck(init="driver-validation")


@check("cuda-smoke")
def cuda_smoke(world: World, _pod: Obj, node: str) -> Behaviour:
    """What `workflows/stages/scripts/cuda_smoke.sh` reports."""
    found = world.find(NODES, node)
    report: dict[str, Any] = {"node": node, "uuids": [], "devices": 0, "passed": 0, "error": ""}
    if found is None or TOOLKIT not in (found["metadata"].get("annotations") or {}):
        return Exit(message=report | {"error": "nvidia-smi: not found"})
    count = visible_gpus(world, node)
    passed = 0 if world.fault("cuda_fails", node) else count
    error = "" if passed else f"{uuid(world, node, 0)}: CUDA driver version is insufficient for CUDA runtime version"
    uuids = [uuid(world, node, number) for number in range(count)]
    lines = [f"{one}: {'Test PASSED' if passed else error}" for one in uuids]
    return Exit(
        message=report | {"uuids": uuids, "devices": count, "passed": passed, "error": error}, log="\n".join(lines), seconds=12
    )
