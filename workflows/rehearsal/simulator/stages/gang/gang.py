"""Stage gang: the simulated schedulers Volcano, KAI and Kueue, the pods of the check's gangs, and schedulers of somebody else.

Importing this module registers their charts and pods.
"""

from __future__ import annotations

import zlib
from typing import Any

from workflows.rehearsal.simulator import virtual_clock
from workflows.rehearsal.simulator.api.api_kinds import DEPLOYMENTS, NAMESPACES, NODES, PODS, Obj, ObjectKind, labels_of
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.scheduler import quantity, requests
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, BlockedStart, Exit, LongRunning, NeverStarted, check
from workflows.rehearsal.simulator.stages import sharing
from workflows.rehearsal.simulator.stages.gang import gang_kai, gang_kueue, gang_volcano
from workflows.rehearsal.simulator.stages.gang.gang_kai import Kai
from workflows.rehearsal.simulator.stages.gang.gang_kueue import Kueue
from workflows.rehearsal.simulator.stages.gang.gang_volcano import Volcano
from workflows.rehearsal.simulator.stages.gpu_operator import gpu_operator_nodes, gpu_shares
from workflows.rehearsal.simulator.world import SAMPLE_ABOVE, Changes, World

KERNEL_SECONDS = 12.0
"""Virtual seconds that a member needs to build and run its CUDA kernel."""
LEAST_HOLD = 20.0
"""Virtual seconds that a member runs at any delay scale: members are bound in several rounds, and all run at one moment."""
NO_DEVICE = (
    "Allocate failed due to requested number of devices unavailable for {0}. Requested: {1}, Available: 0, which is unexpected"
)
NO_ROOM = "Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110"
NO_TASK = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start "
    "container process: error during container init: exec: operation not permitted"
)
NO_SPEC = "failed to generate container spec: failed to apply OCI options: failed to mkdir: read-only file system"


@check("gang-oversize")
def waiting(_world: World, _pod: Obj, _node: str) -> LongRunning:
    """Play a pod of the gang that cannot fit: it sleeps until it is deleted."""
    return LongRunning()


@check("gang-fit")
def member(world: World, pod: Obj, node: str) -> Behaviour:
    """Play a pod of the gang that fits: it holds its place, runs a CUDA kernel if it requested GPUs, and reports.

    The report has the form that `sharing_hold.sh` and `gang_member.sh` in `workflows/stages/scripts` print.
    """
    resource, units = _gpus(pod)
    if world.fault("gang_members_refused", node):
        if resource:
            return NeverStarted(reason="UnexpectedAdmissionError", message=NO_DEVICE.format(resource, units))
        return NeverStarted(reason="OutOfpods", message=NO_ROOM)
    if world.fault("gang_members_fail_to_start", node):
        return NeverStarted(reason="StartError", message=NO_TASK, code=128)
    if world.fault("gang_members_wait_to_start", node):
        return BlockedStart(reason="CreateContainerError", message=NO_SPEC)
    hold = float(simulated_pods.environment(pod).get("SECONDS_TO_HOLD", "0")) + (KERNEL_SECONDS if resource else 0.0)
    started = simulated_pods.started_at(pod)
    begin = int(virtual_clock.parse_stamp(started) if started else world.now)
    devices = _cuda_report(world, pod, node, resource, units) if resource else {}
    report: dict[str, Any] | str = {"node": node, **devices, "begin": begin, "end": begin + int(hold)}
    message = "" if world.fault("gang_members_say_nothing", node) else report
    return Exit(message=message, seconds=hold, least=LEAST_HOLD)


def _gpus(pod: Obj) -> tuple[str, int]:
    """Return the GPU resource that a pod requests, and how many units; an empty name if it requests none."""
    wanted = ((name, int(amount)) for name, amount in requests(pod).items() if name.startswith("nvidia.com/") and amount)
    return next(wanted, ("", 0))


def _cuda_report(world: World, pod: Obj, node: str, resource: str, units: int) -> dict[str, Any]:
    """Return devices and result of a member's CUDA script. Its units come after those of the members before it on the node."""
    status = (world.find(NODES, node) or {}).get("status") or {}
    gpus = max(gpu_operator_nodes.visible_gpus(world, node), 1)
    # a node with MIG instances or shares has several units on each GPU
    per_gpu = max(int(quantity(status.get("allocatable", {}).get(resource, gpus))) // gpus, 1)
    sliced = world.node_annotations(node).get(sharing.DONE, "").startswith("mig:")
    first = _first_unit(world, pod, node)
    places = [divmod(unit % (gpus * per_gpu), per_gpu) for unit in range(first, first + units)]
    if sliced:
        named = [gpu_shares.device_uuid(node, gpu, instance) for gpu, instance in places]
    else:
        named = [gpu_operator_nodes.gpu_uuid(world, node, gpu) for gpu, _ in places]
    uuids = list(dict.fromkeys(named))
    passed = 0 if world.fault("gang_members_without_cuda", node) else len(uuids)
    error = "" if passed else f"{uuids[0]}: CUDA driver version is insufficient for CUDA runtime version"
    return {"uuids": uuids, "passed": passed, "error": error}


def _first_unit(world: World, pod: Obj, node: str) -> int:
    """Return the number of the first GPU unit of a member on its node: those of members before it by name are taken.

    In large fleets, where members take whole nodes or shares, it is a number drawn from the name: counting would be quadratic.
    """
    name, check_name = pod["metadata"]["name"], labels_of(pod)[simulated_pods.CHECK]
    if len(world.fleet) > SAMPLE_ABOVE:
        return zlib.crc32(name.encode()) % 2**16
    gang = world.select(PODS, pod["metadata"]["namespace"], {simulated_pods.CHECK: check_name})
    before = (other for other in gang if simulated_pods.node(other) == node and other["metadata"]["name"] < name)
    return sum(_gpus(other)[1] for other in before)


# ---- schedulers of somebody else -----------------------------------------------------------------------------------------------

FOREIGN = "ml-tools"
"""Namespace of a platform team that runs a scheduler of its own."""
PRODUCTS: tuple[tuple[ObjectKind, str, str], ...] = (
    (gang_volcano.GROUPS, "docker.io/volcanosh/vc-scheduler:v1.9.0", "volcano"),
    (gang_kai.GROUPS, "ghcr.io/nvidia/kai-scheduler/scheduler:v0.9.1", "kai-scheduler"),
    (gang_kueue.WORKLOADS, "registry.k8s.io/kueue/kueue:v0.11.4", ""),
)
"""Kind by which a product is known to be installed → image of its older release, and the scheduler name that its pods serve."""


class ForeignSchedulers:
    """Schedulers that somebody else installed: the faults `gang_second_scheduler` and `gang_second_by_arguments`."""

    name = "foreign_schedulers"
    kinds = (DEPLOYMENTS,)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Create the foreign Deployments of the active faults, for each product that the cluster serves."""
        faults = [name for name in ("gang_second_scheduler", "gang_second_by_arguments") if world.fault(name)]
        if not faults or not changed.concern(*self.kinds):
            return
        for kind, image, scheduler_name in PRODUCTS:
            if not world.served(kind):
                continue
            world.create(NAMESPACES, {"metadata": {"name": FOREIGN}})
            if "gang_second_scheduler" in faults:
                _deploy(world, "batch-scheduling", {"image": image})
            elif scheduler_name:
                rebuilt = {"image": "registry.example.org/ml/placer:7", "args": [f"--scheduler-name={scheduler_name}"]}
                _deploy(world, "placer", rebuilt)


def _deploy(world: World, name: str, container: Obj) -> None:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", **container}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    world.ensure(DEPLOYMENTS, {"metadata": {"name": name, "namespace": FOREIGN, "labels": labels}, "spec": spec})


ROLES = (Volcano, Kai, Kueue, ForeignSchedulers)
