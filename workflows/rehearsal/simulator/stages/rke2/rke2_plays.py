"""Stage rke2: its playbooks, with their effect on simulated machines and the facts that they report."""

from __future__ import annotations

import functools
import ipaddress
import json
from collections.abc import Iterable, Iterator, Set
from typing import Any

import msgspec

from steps.contract.host_play import PlayHost, PlayRequest
from steps.contract.run_records import PLAYBOOK, LeaseSpec, ServerIdentity, ServerState
from workflows.rehearsal.simulator.api.api_kinds import LEASES, NAMESPACES, NODES, Obj
from workflows.rehearsal.simulator.controllers import node_objects
from workflows.rehearsal.simulator.playbook_runs import TaskOutcome, TaskStatus, failed, play, unreachable
from workflows.rehearsal.simulator.stages.rke2 import rke2_charts
from workflows.rehearsal.simulator.world import World

DEFAULT_VERSION = "v1.35.7+rke2r1"
TOKEN = "K10" + "5" * 64 + "::server:simulated"
"""A join token in RKE2's secure format: hash of the CA, user, password (https://docs.rke2.io/security/token)."""


@play(PLAYBOOK)
def identify(world: World, request: PlayRequest) -> Iterator[TaskOutcome]:
    """Play the playbook that asks each server for its cluster: the cluster's uid, kubeconfig and lease, or `bare` without RKE2."""
    space = world.api.get(NAMESPACES, "kube-system", "")
    uid = space["metadata"]["uid"] if space else ""
    lease_object = world.api.get(LEASES, "bringup", "kube-system")
    lease = msgspec.convert(lease_object["spec"], LeaseSpec) if lease_object else None
    running = ServerIdentity(state=ServerState.RUNNING, kind="rke2", uid=uid, lease=lease, kubeconfig=world.kubeconfig)
    for host in request.hosts:
        if host.name not in world.fleet:
            continue
        if world.fault("hosts_unreachable", host.name):
            yield unreachable(host, _IDENTIFY, _MODULE)
            continue
        shown = running if "rke2" in world.hosts[host.name] else ServerIdentity(state=ServerState.BARE)
        result = {"observation": msgspec.to_builtins(shown)}
        yield TaskOutcome(host=host.name, task=_IDENTIFY, action=_MODULE, result=result)


_IDENTIFY, _MODULE = "Read the identity of the cluster", "cluster_identity"


def _play(world: World, request: PlayRequest, *, server: bool, back: bool) -> Iterator[TaskOutcome]:
    """Play the installation of RKE2 on servers or agents or, with `back`, the rollback to the release before an upgrade.

    Each server reports the admin kubeconfig with its facts. Variables whose effect the API does not show have none. Objects survive
    a rollback, because the emulated API has no etcd snapshot.
    """
    hosts = [host for host in request.hosts if host.name in world.fleet]
    service = "rke2-server" if server else "rke2-agent"
    wanted = {host.name: _configuration(world, host, request.variables | host.variables, server) for host in hosts}
    untouched = set(request.variables.get("rke2_untouched", ()))
    new = {name for name, config in wanted.items() if _without_time(world.hosts[name].get("rke2")) != config} - untouched
    yield from _forget(world, [name for name in request.variables.get("rke2_replaced", ()) if name in new])
    strangers = sorted(name for name in new if "rke2" not in world.hosts[name] and world.find(NODES, name) is not None)
    for name in strangers:
        yield failed(name, _TAKE, _NAMESAKE.format(name), seconds=2)
    open_ones = sorted(name for name in new if server and _leaves_ingress_open(world.hosts[name].get("rke2"), request.variables))
    for name in open_ones:
        message = _INGRESS.format(request.variables["rke2_version"], world.hosts[name]["rke2"]["version"])
        yield failed(name, _CHOOSE, message, seconds=1)
    wanted = {name: config for name, config in wanted.items() if name not in (*strangers, *open_ones)}
    new -= {*strangers, *open_ones}
    yield from _steps(wanted, new, ("Put the kept release back", "rke2_release", 20.0) if back else _INSTALL)
    yield from _steps(wanted, new, ("Write the configuration", "ansible.builtin.template", 2.0))
    refused = {name for name in new if world.fault("join_refused", name)}
    start = (f"Start {service}", "ansible.builtin.systemd_service", 60.0 if server else 20.0)
    yield from _steps({name: wanted[name] for name in wanted if name not in refused}, new, start)
    for name in sorted(refused):
        yield failed(name, start[0], _REFUSED, seconds=30, action=start[1])
    for name in new - refused if not request.check else ():
        kept = wanted[name]["version"] if back else _kept(world.hosts[name].get("rke2"), wanted[name])
        world.hosts[name]["rke2"] = wanted[name] | {"since": world.now, "kept": kept}
    world.wake()
    holder = next(iter(sorted(new)), "") if back and server else ""
    for name in wanted:
        facts = _facts(world, name, service, name in new) | ({"restored": _SNAPSHOT.format(name)} if name == holder else {})
        yield TaskOutcome(host=name, task="Read the service", action="rke2_facts", result={"observation": facts})


for _server in (True, False):
    _kind = "server" if _server else "agent"
    play(f"rke2_{_kind}")(functools.partial(_play, server=_server, back=False))
    play(f"rke2_{_kind}_rollback")(functools.partial(_play, server=_server, back=True))


def _steps(hosts: Iterable[str], new: Set[str], task: tuple[str, str, float]) -> Iterator[TaskOutcome]:
    """Yield a task's outcome on all hosts: changed for those in `new`, else ok. `task`: name, action, seconds if changed."""
    name, action, seconds = task
    for host in hosts:
        changed = host in new
        status = TaskStatus.CHANGED if changed else TaskStatus.OK
        yield TaskOutcome(host=host, task=name, status=status, seconds=seconds if changed else 1.0, action=action)


def _forget(world: World, names: Iterable[str]) -> Iterator[TaskOutcome]:
    """Delete the Node of a replaced machine if the new machine of that name has no RKE2 yet; yield the outcomes."""
    for name in names:
        node = world.find(NODES, name)
        if "rke2" not in world.hosts[name] and node is not None:
            world.delete(NODES, node)
            yield TaskOutcome(host=name, task="Forget the machine that had this name", status=TaskStatus.CHANGED, seconds=5)


_INSTALL = ("Install RKE2", "ansible.builtin.unarchive", 40.0)
_SNAPSHOT = "/var/lib/rancher/rke2/server/db/snapshots/bringup-before-simulated-{}"
_TAKE = "Take no new machine for the one that had its name"
_NAMESAKE = (
    "{0} has joined no cluster yet, and this one still has a Node of its name: RKE2 would refuse the new machine's node password; "
    "`bringup replace-node SPEC --hosts {0}` has the cluster forget the old machine and brings this one in"
)
"""Message of the role for a new machine whose name a Node of another machine has."""
_CHOOSE = "Stop where the wanted release may not take the place of the one that is there"
_INGRESS = (
    "rke2.ingress_controller: {0} gives new clusters Traefik, and this one, which runs {1}, would keep ingress-nginx: write "
    "ingress_controller: ingress-nginx to keep it, traefik to change over (docs.rke2.io/reference/ingress_migration), or none; "
    "nothing was changed"
)
"""Message of the role if an upgrade changes the default ingress controller and the spec does not choose one."""
_REFUSED = (
    "Unable to start service rke2-agent: Job for rke2-agent.service failed because the control process exited with error code. "
    'level=fatal msg="starting kubernetes: preparing server: failed to validate token: token CA hash does not match the Cluster CA '
    'certificate hash"'
)


def _configuration(world: World, host: PlayHost, variables: dict[str, Any], server: bool) -> dict[str, Any]:
    """Return what decides how RKE2 runs on a host: release, network plugins, ingress controller, labels, taints.

    It stands for /etc/rancher/rke2/config.yaml. Labels and taints come by host group, some labels by host.
    """
    group = world.host(host.name).group
    node_labels = [*variables.get("rke2_node_labels", {}).get(group, ()), *variables.get("rke2_host_labels", {}).get(host.name, ())]
    return {
        "server": server,
        "version": str(variables.get("rke2_version", DEFAULT_VERSION)),
        "cni": list(variables.get("rke2_cni", ["canal"])),
        "ingress": variables.get("rke2_ingress_controller") or rke2_charts.ingress_of(str(variables.get("rke2_version", ""))),
        # The first address of the service network is that of the API's own Service.
        "service": str(ipaddress.ip_network(str(variables.get("rke2_service_cidr", "10.43.0.0/16"))).network_address + 1),
        "labels": dict(label.split("=", 1) for label in node_labels),
        "taints": list(variables.get("rke2_node_taints", {}).get(group, ())),
    }


def _leaves_ingress_open(state: dict[str, Any] | None, variables: dict[str, Any]) -> bool:
    """Return True if an upgrade of a host with `state` changes the default ingress controller and the variables choose none."""
    if state is None or variables.get("rke2_ingress_controller"):
        return False
    versions = (state["version"], str(variables.get("rke2_version", DEFAULT_VERSION)))
    return [rke2_charts.ingress_of(version) for version in versions] == ["ingress-nginx", "traefik"]


def _without_time(state: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (state or {}).items() if key not in ("since", "kept")}


def _kept(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    """Return the RKE2 release that a host keeps for a rollback: the one before `after`; empty before its first upgrade."""
    if before is None:
        return ""
    return str(before["version"] if before["version"] != after["version"] else before.get("kept", ""))


def _facts(world: World, name: str, service: str, changed: bool) -> dict[str, Any]:
    """Return a host's facts in the form of `steps.stages.rke2.contract.HostFacts`; those of a server hold its kubeconfig."""
    state = world.hosts[name].get("rke2")
    facts = {
        "service": service,
        "version": state["version"] if state else "",
        "state": "active" if state else "inactive",
        "enabled": state is not None,
        "ready": state is not None,
        "node_ip": node_objects.address(world, name),
        "restarts": 0,
        "started": state["since"] if state else 0.0,
        "changed_config": changed,
        "kept": state["kept"] if state else "",
    }
    if state is None or not state["server"]:
        return facts
    facts |= {"secrets_encryption": "Enabled", "etcd_seen": etcd_report(world, name, state["since"])}
    return facts | {"kubeconfig": world.kubeconfig, "token": TOKEN}


FSYNC_BOUNDS = tuple(0.001 * 2**power for power in range(14))
"""Upper bounds in seconds of the buckets in etcd's histogram of fsync times."""
FAST_FSYNC, SLOW_FSYNC = 0.002, 0.048
"""Longest time in seconds of an fsync on an NVMe disk; `SLOW_FSYNC` is that on a disk which other programs use too."""
FSYNCS = 5000


def etcd_report(world: World, name: str, since: float) -> Obj:
    """Return a server's etcd metrics and health as port 2381 would serve them, with made-up figures.

    It is the field `etcd_seen` of `HostFacts`. `since` is the start of the service in seconds since the epoch.
    """
    servers = [host for host, state in world.hosts.items() if state.get("rke2", {}).get("server")]
    slowest = SLOW_FSYNC if world.fault("etcd_disk_slow", name) else FAST_FSYNC
    changes = 40 if world.fault("etcd_leader_changes", name) else 1
    lines = [
        *(
            f'etcd_disk_wal_fsync_duration_seconds_bucket{{le="{bound:g}"}} {_fsyncs_within(bound, slowest)}'
            for bound in FSYNC_BOUNDS
        ),
        f'etcd_disk_wal_fsync_duration_seconds_bucket{{le="+Inf"}} {FSYNCS}',
        f"etcd_server_leader_changes_seen_total {changes}",
        "etcd_server_has_leader 1",
        "etcd_server_is_learner 0",
        *(f'etcd_network_active_peers{{Local="{name}",Remote="{other}"}} 1' for other in servers if other != name),
        *(f'etcd_network_known_peers{{Local="{name}",Remote="{other}"}} 1' for other in servers),
        f"process_start_time_seconds {since:.3f}",
    ]
    return {"metrics": "\n".join(lines), "health": json.dumps({"health": "true", "reason": ""}), "read": world.now}


def _fsyncs_within(bound: float, slowest: float) -> int:
    """Return how many fsyncs took at most `bound` seconds: all take at most `slowest`, nine tenths at most a tenth of it."""
    return FSYNCS if bound >= slowest else FSYNCS * 9 // 10 if bound >= slowest / 10 else 0
