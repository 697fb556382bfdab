"""Make the files of the two folders that a run is given: one with its tasks, one with its hosts, cut into shards."""

import gzip
from collections.abc import Iterable
from itertools import groupby

from steps.contract import fleet, run_records
from steps.contract.canonical import canonical
from steps.contract.delivery import TREE_FILE
from steps.contract.runs.operation import BRINGUP, Operation
from steps.contract.task import TaskError
from workflows.plan import show
from workflows.plan.model import Plan
from workflows.spec.cluster_spec import ClusterSpec, max_pods
from workflows.spec.machines import Machine

MAX_BYTES = 900_000
"""Size limit of the tasks folder in bytes: on Argo it is one ConfigMap, limited by the API server to 1 MiB with its metadata."""


def tasks_folder(plan: Plan) -> dict[str, bytes]:
    """Return the files of the tasks folder, name → bytes: each task, role archives, the plan as JSON, and the files for Git.

    Raises TaskError for a task above 8 kB, or if all files together are too large for a ConfigMap.
    """
    files = {**plan.task_files, **plan.archives, run_records.PLAN_FILE: canonical(show.to_data(plan))}
    if plan.tree:
        files[TREE_FILE] = canonical(dict(plan.tree))
    size = sum(map(len, files.values()))
    if size > MAX_BYTES:
        largest = max(files, key=lambda name: len(files[name]))
        raise TaskError(
            f"the tasks of {plan.name} have {size} bytes, the largest {largest} {len(files[largest])}, limit {MAX_BYTES}: "
            "make Helm values shorter (put long texts into ConfigMaps of their own), or make your own roles smaller"
        )
    return files


def hosts(machines: Iterable[Machine], operation: Operation = BRINGUP) -> tuple[fleet.Host, ...]:
    """Return the expected hosts of a run, servers first, otherwise in the order of the spec.

    Hosts that the operation does not touch are marked `untouched`.
    """
    ordered = sorted(machines, key=lambda machine: machine.role != "server")
    return tuple(
        fleet.Host(
            name=machine.name,
            address=machine.address,
            group=machine.group,
            role=machine.role,
            gpus=machine.gpus,
            rack=machine.rack,
            variables=_variables(machine),
            untouched=not operation.touches(machine.name),
        )
        for machine in ordered
    )


def shards(every: Iterable[fleet.Host]) -> tuple[tuple[fleet.Host, ...], ...]:
    """Return the hosts cut into shards of at most SHARD_SIZE, in order. No shard holds both servers and agents."""
    cut: list[tuple[fleet.Host, ...]] = []
    for _, members in groupby(every, key=lambda host: host.role):
        group = tuple(members)
        cut += [group[start : start + fleet.SHARD_SIZE] for start in range(0, len(group), fleet.SHARD_SIZE)]
    return tuple(cut)


def fleet_folder(plan: str, every: tuple[fleet.Host, ...]) -> dict[str, bytes]:
    """Return the files of the fleet folder, name → bytes: `index.json` and one gzip file a shard. `plan` is the plan's digest."""
    cut = shards(every)
    index = fleet.Index(plan=plan, hosts=len(every), shards=len(cut))
    # without a time in the gzip header the same hosts give the same bytes
    packed = {fleet.shard_file(number): gzip.compress(canonical(list(members)), mtime=0) for number, members in enumerate(cut)}
    return {fleet.INDEX: canonical(index), **packed}


def _variables(machine: Machine) -> dict[str, str]:
    """Return the variables of one machine for Ansible plays and simulated hosts; empty values are left out."""
    values = {
        "leaf": machine.leaf,
        "scalable_unit": machine.scalable_unit,
        "ssh_user": machine.ssh_user,
        "ssh_port": str(machine.ssh_port or ""),
        "ssh_jump": machine.ssh_jump,
        "ssh_http_proxy": machine.ssh_http_proxy,
        "python": machine.python,
        "accelerator": machine.product.lower(),
    }
    return {key: value for key, value in values.items() if value}


def machine_statements(spec: ClusterSpec) -> dict[str, str | int | bool]:
    """Return the machine properties that the spec states, by field name of a simulated machine; properties left open are absent."""
    system, gpu, fabric = spec.os, spec.accelerator, spec.fabric
    settings: dict[str, str | int | bool] = {"os_id": system.distribution, "os_version": system.version}
    settings |= {"os_image": f"{system.distribution} {system.version}"} | ({"kernel": system.kernel} if system.kernel else {})
    settings["pods"] = max_pods(spec)
    if gpu is not None:
        settings |= {"driver_on_host": gpu.driver == "host"} | ({"driver": gpu.driver_version} if gpu.driver_version else {})
    if fabric.kind != "none":
        settings |= {"nics": fabric.nics_per_node, "nic_gbit": fabric.rate_gbit, "pci_nic": fabric.device_ids[0]}
        settings["nic_link"] = fabric.nccl_link
        settings |= {"link_mtu": fabric.mtu} if fabric.mtu else {}
    return settings
