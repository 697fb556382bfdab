"""RKE2's playbooks: what they do to simulated machines, and the facts that they hand back."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Set
from typing import Any

import msgspec

from steps.contract.identity import PLAYBOOK, LeaseSpec, ServerIdentity, State
from steps.contract.play import PlayHost, PlayRequest
from workflows.rehearsal.simulator import rke2_charts, rke2_etcd, rke2_nodes
from workflows.rehearsal.simulator.kinds import LEASES, NAMESPACES, NODES
from workflows.rehearsal.simulator.os_prep import UNREACHABLE
from workflows.rehearsal.simulator.plays import Outcome, Status, play
from workflows.rehearsal.simulator.world import World

DEFAULT_VERSION = "v1.35.7+rke2r1"
TOKEN = "K10" + "5" * 64 + "::server:simulated"  # the secure form: hash of the cluster's CA, user, password


@play("rke2_server")
def rke2_server(world: World, request: PlayRequest) -> Iterable[Outcome]:
    """Install and start servers; each hands back the admin kubeconfig beside its facts."""
    return _play(world, request, server=True)


@play("rke2_agent")
def rke2_agent(world: World, request: PlayRequest) -> Iterable[Outcome]:
    """Install and start agents."""
    return _play(world, request, server=False)


@play("rke2_server_rollback")
def rke2_server_rollback(world: World, request: PlayRequest) -> Iterable[Outcome]:
    """Put the release before back on servers. What the emulated API holds stays: it knows no snapshot."""
    return _play(world, request, server=True, back=True)


@play("rke2_agent_rollback")
def rke2_agent_rollback(world: World, request: PlayRequest) -> Iterable[Outcome]:
    """Put the release before back on agents."""
    return _play(world, request, server=False, back=True)


@play(PLAYBOOK)
def identify(world: World, request: PlayRequest) -> Iterator[Outcome]:
    """Which cluster each server belongs to: the emulated one, once RKE2 runs there; its kubeconfig, and who holds it."""
    space = world.api.get(NAMESPACES, "kube-system", "")
    uid = space["metadata"]["uid"] if space else ""
    found = world.api.get(LEASES, "bringup", "kube-system")
    lease = msgspec.convert(found["spec"], LeaseSpec) if found else None
    running = ServerIdentity(state=State.RUNNING, kind="rke2", uid=uid, lease=lease, kubeconfig=world.kubeconfig)
    for host in request.hosts:
        if host.name not in world.fleet:
            continue
        if world.fault("hosts_unreachable", host.name):
            said = {"unreachable": True, "msg": UNREACHABLE.format(host.address)}
            yield Outcome(host=host.name, task=_IDENTIFY, status=Status.UNREACHABLE, seconds=10, action=_MODULE, result=said)
            continue
        shown = running if "rke2" in world.hosts[host.name] else ServerIdentity(state=State.BARE)
        result = {"observation": msgspec.to_builtins(shown)}
        yield Outcome(host=host.name, task=_IDENTIFY, action=_MODULE, result=result)


_IDENTIFY, _MODULE = "Read the identity of the cluster", "cluster_identity"


def _play(world: World, request: PlayRequest, *, server: bool, back: bool = False) -> Iterator[Outcome]:
    """Variables read are those of stage rke2's `_variables`; the others change nothing that the API shows. `back`: to the release
    that an upgrade took the place of."""
    hosts = [host for host in request.hosts if host.name in world.fleet]
    service = "rke2-server" if server else "rke2-agent"
    wanted = {host.name: _configuration(world, host, request.variables | host.variables, server) for host in hosts}
    untouched = set(request.variables.get("rke2_untouched", ()))
    new = {name for name, config in wanted.items() if _without_time(world.hosts[name].get("rke2")) != config} - untouched
    yield from _forget(world, [name for name in request.variables.get("rke2_replaced", ()) if name in new])
    strangers = sorted(name for name in new if "rke2" not in world.hosts[name] and world.find(NODES, name) is not None)
    for name in strangers:
        said = {"msg": _NAMESAKE.format(name)}
        yield Outcome(host=name, task=_TAKE, status=Status.FAILED, seconds=2, action="ansible.builtin.assert", result=said)
    open_ones = sorted(name for name in new if server and _leaves_ingress_open(world.hosts[name].get("rke2"), request.variables))
    for name in open_ones:
        said = {"msg": _INGRESS.format(request.variables["rke2_version"], world.hosts[name]["rke2"]["version"])}
        yield Outcome(host=name, task=_CHOOSE, status=Status.FAILED, seconds=1, action="ansible.builtin.assert", result=said)
    wanted = {name: config for name, config in wanted.items() if name not in (*strangers, *open_ones)}
    new -= {*strangers, *open_ones}
    yield from _steps(wanted, new, ("Put the kept release back", "rke2_release", 20.0) if back else _INSTALL)
    yield from _steps(wanted, new, ("Write the configuration", "ansible.builtin.template", 2.0))
    refused = {name: _REFUSED for name in new if world.fault("join_refused", name)}
    start = (f"Start {service}", "ansible.builtin.systemd_service", 60.0 if server else 20.0)
    yield from _steps({name: wanted[name] for name in wanted if name not in refused}, new, start)
    for name in sorted(refused):
        yield Outcome(host=name, task=start[0], status=Status.FAILED, seconds=30, action=start[1], result={"msg": refused[name]})
    for name in new - set(refused) if not request.check else ():
        kept = wanted[name]["version"] if back else _kept(world.hosts[name].get("rke2"), wanted[name])
        world.hosts[name]["rke2"] = wanted[name] | {"since": world.now, "kept": kept}
    world.wake()
    holder = next(iter(sorted(new)), "") if back and server else ""
    for name in wanted:
        facts = _facts(world, name, service, name in new) | ({"restored": _SNAPSHOT.format(name)} if name == holder else {})
        yield Outcome(host=name, task="Read the service", action="rke2_facts", result={"observation": facts})


def _steps(hosts: Iterable[str], new: Set[str], task: tuple[str, str, float]) -> Iterator[Outcome]:
    """One task over all hosts: work on the new ones, nothing to do on the others."""
    name, action, seconds = task
    for host in hosts:
        changed = host in new
        status = Status.CHANGED if changed else Status.OK
        yield Outcome(host=host, task=name, status=status, seconds=seconds if changed else 1.0, action=action)


def _forget(world: World, names: Iterable[str]) -> Iterator[Outcome]:
    """A server deletes the Node of a machine that is no more, while the new one of that name is still bare."""
    for name in names:
        node = world.find(NODES, name)
        if "rke2" not in world.hosts[name] and node is not None:
            world.delete(NODES, node)
            yield Outcome(host=name, task="Forget the machine that had this name", status=Status.CHANGED, seconds=5)


_INSTALL = ("Install RKE2", "ansible.builtin.unarchive", 40.0)
_SNAPSHOT = "/var/lib/rancher/rke2/server/db/snapshots/bringup-before-simulated-{}"
_TAKE = "Take no new machine for the one that had its name"
_NAMESAKE = (
    "{0} has joined no cluster yet, and this one still has a Node of its name: RKE2 would refuse the new machine's node password; "
    "`bringup replace-node SPEC --hosts {0}` has the cluster forget the old machine and brings this one in"
)
"""What the role says of a machine whose name another one registered with (peers §4)."""
_CHOOSE = "Stop where the wanted release may not take the place of the one that is there"
_INGRESS = (
    "rke2.ingress_controller: {0} gives new clusters Traefik, and this one, which runs {1}, would keep ingress-nginx: write "
    "ingress_controller: ingress-nginx to keep it, traefik to change over (docs.rke2.io/reference/ingress_migration), or none; "
    "nothing was changed"
)
"""What it says where an upgrade would leave open which of both the cluster has."""
_REFUSED = (
    "Unable to start service rke2-agent: Job for rke2-agent.service failed because the control process exited with error code. "
    'level=fatal msg="starting kubernetes: preparing server: failed to validate token: token CA hash does not match the Cluster CA '
    'certificate hash"'
)


def _configuration(world: World, host: PlayHost, variables: dict[str, Any], server: bool) -> dict[str, Any]:
    """What this host's /etc/rancher/rke2/config.yaml would say. Labels and taints are given by group, some labels by host."""
    group = world.host(host.name).group
    given = [*variables.get("rke2_node_labels", {}).get(group, ()), *variables.get("rke2_host_labels", {}).get(host.name, ())]
    return {
        "server": server,
        "version": str(variables.get("rke2_version", DEFAULT_VERSION)),
        "cni": list(variables.get("rke2_cni", ["canal"])),
        "ingress": variables.get("rke2_ingress_controller") or rke2_charts.ingress_of(str(variables.get("rke2_version", ""))),
        "service": _first_address(str(variables.get("rke2_service_cidr", "10.43.0.0/16"))),
        "labels": dict(label.split("=", 1) for label in given),
        "taints": list(variables.get("rke2_node_taints", {}).get(group, ())),
    }


def _leaves_ingress_open(state: dict[str, Any] | None, variables: dict[str, Any]) -> bool:
    """Whether an upgrade comes to the minor from which on new clusters have another ingress controller, and names none."""
    if state is None or variables.get("rke2_ingress_controller"):
        return False
    before, after = (rke2_charts.ingress_of(one) for one in (state["version"], str(variables.get("rke2_version", DEFAULT_VERSION))))
    return (before, after) == ("ingress-nginx", "traefik")


def _first_address(cidr: str) -> str:
    """The API's own service has the first address of the service network."""
    return str(ipaddress.ip_network(cidr).network_address + 1)


def _without_time(state: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (state or {}).items() if key not in ("since", "kept")}


def _kept(before: dict[str, Any] | None, now: dict[str, Any]) -> str:
    """The release that another took the place of stays on the host, until a third does."""
    if before is None:
        return ""
    return str(before["version"] if before["version"] != now["version"] else before.get("kept", ""))


def _facts(world: World, name: str, service: str, changed: bool) -> dict[str, Any]:
    """What the last module of the play reads on the host (`steps.contract.stages.rke2.HostFacts`), and a server's kubeconfig."""
    state = world.hosts[name].get("rke2")
    facts = {
        "service": service,
        "version": state["version"] if state else "",
        "state": "active" if state else "inactive",
        "enabled": state is not None,
        "ready": state is not None,
        "node_ip": rke2_nodes.address(world, name),
        "restarts": 0,
        "started": state["since"] if state else 0.0,
        "changed_config": changed,
        "kept": state["kept"] if state else "",
    }
    if state is None or not state["server"]:
        return facts
    facts |= {"secrets_encryption": "Enabled", "etcd_seen": rke2_etcd.told(world, name, state["since"])}
    return facts | {"kubeconfig": world.kubeconfig, "token": TOKEN}
