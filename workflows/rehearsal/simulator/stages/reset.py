"""Operation reset: the playbook that removes RKE2 from machines, and their Nodes if the cluster goes on without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steps.contract.host_play import PlayRequest
from workflows.rehearsal.simulator.api.api_kinds import NODES
from workflows.rehearsal.simulator.playbook_runs import TaskOutcome, TaskStatus, play, unreachable
from workflows.rehearsal.simulator.stages.gpu_operator.gpu_operator_nodes import driver_of_operator
from workflows.rehearsal.simulator.world import World

_LOOKED = {"processes": 180, "mounts": 40, "links": 3, "addresses": 5, "routes": 7, "rules": 2, "paths": 14, "units": 3}
"""Number of things on a machine that the removal checks for traces of RKE2, by kind."""

_FORGET = ("Let the cluster forget the machine", "ansible.builtin.command")
_REMOVE = ("Remove what is left of RKE2", "rke2_traces")


@play("rke2_reset")
def rke2_reset(world: World, request: PlayRequest) -> Iterator[TaskOutcome]:
    """Play the playbook rke2_reset: stop and remove RKE2; each host reports the traces that are left.

    With the variable `rke2_reset_forget`, the Nodes of the hosts are deleted first.
    """
    hosts = [host for host in request.hosts if host.name in world.fleet]
    for host in hosts:
        if world.fault("hosts_unreachable", host.name):
            yield unreachable(host, "Connect")
    drivers = {host.name for host in hosts if driver_of_operator(world, host.name)}
    for host in hosts if request.variables.get("rke2_reset_forget") else ():
        node = world.find(NODES, host.name)
        if node is not None:
            world.delete(NODES, node)
        status = TaskStatus.OK if node is None else TaskStatus.CHANGED
        yield TaskOutcome(host=host.name, task=_FORGET[0], action=_FORGET[1], status=status, seconds=20)
    for host in hosts:
        state = world.hosts[host.name].pop("rke2", None)
        driven = host.name in drivers
        kernel = {"foreign_driver": driven, "cilium_programs": state is not None and "cilium" in state["cni"]}
        result = {"observation": {"traces": _traces(world, host.name, driven), **kernel}}
        status = TaskStatus.OK if state is None else TaskStatus.CHANGED
        yield TaskOutcome(host=host.name, task=_REMOVE[0], action=_REMOVE[1], status=status, seconds=15, result=result)
    world.wake()


def _traces(world: World, name: str, driven: bool) -> dict[str, Any]:
    left: dict[str, Any] = {kind: [] for kind in _LOOKED} | {"looked": _LOOKED}
    if world.fault("shim_hangs", name):
        left |= {"processes": ["4711 containerd-shim-runc-v2"], "mounts": ["/run/k3s/containerd/io.containerd.runtime.v2.task"]}
        left["mounts"] += ["/run/nvidia/driver"] if driven else []
    if world.fault("chains_left", name):
        left |= {"rules": ["nat KUBE-SERVICES", "filter KUBE-FORWARD"]}
    return left
