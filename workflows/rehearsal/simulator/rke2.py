"""RKE2: its playbooks' answers, and what its first server brings into the cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Set
from typing import Any

import msgspec

from steps.contract.identity import PLAYBOOK, ServerIdentity, State
from steps.contract.play import PlayHost, PlayRequest
from workflows.rehearsal.simulator import rke2_charts, rke2_etcd, rke2_nodes
from workflows.rehearsal.simulator.kinds import CRDS, DAEMON_SETS, HELM_CHARTS, NAMESPACES, NODES, PODS, Obj, definitions
from workflows.rehearsal.simulator.os_prep import UNREACHABLE
from workflows.rehearsal.simulator.placement import admits
from workflows.rehearsal.simulator.plays import Outcome, Status, play
from workflows.rehearsal.simulator.programs import Behaviour, Exit, Run, Stuck, check, pods
from workflows.rehearsal.simulator.rke2_nodes import Nodes
from workflows.rehearsal.simulator.role import Changed
from workflows.rehearsal.simulator.world import World

DEFAULT_VERSION = "v1.35.7+rke2r1"
TOKEN = "K10" + "5" * 64 + "::server:simulated"  # the secure form: hash of the cluster's CA, user, password
STATIC = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "cloud-controller-manager")
"""Static pods of a server; RKE2 labels each `component=NAME` and `tier=control-plane`."""


class Rke2:
    """Plays what runs on servers: the packaged charts (as HelmChart objects, for the helm-controller) and static pods."""

    name = "rke2"
    kinds = (NODES, HELM_CHARTS, PODS, DAEMON_SETS, CRDS)

    def reconcile(self, world: World, changed: Changed) -> None:
        """The first registered server brings HelmChart and the packaged charts; each server has its static pods."""
        servers = [name for name, state in _installed(world) if state["server"] and world.find(NODES, name) is not None]
        if not servers:
            return
        for definition in definitions("helm.cattle.io"):
            world.create(CRDS, definition)
        state = world.hosts[servers[0]]["rke2"]
        for chart in rke2_charts.packaged(state["cni"], state["ingress"]):
            world.create(HELM_CHARTS, chart)
        looked = {at.name for at in changed.refs(NODES)} | ({at.name for at in changed.refs(PODS)} & _static_names(servers))
        for server in servers if looked or changed.everything else ():
            for component in STATIC:
                world.create(PODS, _static_pod(world, component, server))


def _installed(world: World) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, state["rke2"]) for name, state in world.hosts.items() if "rke2" in state)


def _static_names(servers: Iterable[str]) -> set[str]:
    return {f"{component}-{server}" for server in servers for component in STATIC}


def _static_pod(world: World, component: str, server: str) -> Obj:
    node = world.find(NODES, server)
    owners = [NODES.owner(node, controller=True)] if node else []
    return {
        "metadata": {
            "name": f"{component}-{server}",
            "namespace": "kube-system",
            "labels": {"component": component, "tier": "control-plane"},
            "annotations": {
                "kubernetes.io/config.mirror": f"simulated-{component}-{server}",
                "kubernetes.io/config.source": "file",
            },
            "ownerReferences": owners,
        },
        "spec": {
            "nodeName": server,
            "hostNetwork": True,
            "priorityClassName": "system-cluster-critical",
            "containers": [{"name": component, "image": f"rancher/{component}:simulated"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }


# ---- plays -------------------------------------------------------------------------------------------------------------------


@play("rke2_server")
def rke2_server(world: World, request: PlayRequest) -> Iterable[Outcome]:
    """Install and start servers; each hands back the admin kubeconfig beside its facts."""
    return _play(world, request, server=True)


@play("rke2_agent")
def rke2_agent(world: World, request: PlayRequest) -> Iterable[Outcome]:
    """Install and start agents."""
    return _play(world, request, server=False)


@play(PLAYBOOK)
def identify(world: World, request: PlayRequest) -> Iterator[Outcome]:
    """Which cluster each server belongs to: the emulated one, once RKE2 runs there."""
    space = world.api.get(NAMESPACES, "kube-system", "")
    running = ServerIdentity(state=State.RUNNING, kind="rke2", uid=space["metadata"]["uid"] if space else "")
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


def _play(world: World, request: PlayRequest, *, server: bool) -> Iterator[Outcome]:
    """Variables read are those of stage rke2's `_variables`; the others change nothing that the API shows."""
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
    wanted = {name: config for name, config in wanted.items() if name not in strangers}
    new -= set(strangers)
    yield from _steps(wanted, new, ("Install RKE2", "ansible.builtin.unarchive", 40.0))
    yield from _steps(wanted, new, ("Write the configuration", "ansible.builtin.template", 2.0))
    refused = {name: _REFUSED for name in new if world.fault("join_refused", name)}
    start = (f"Start {service}", "ansible.builtin.systemd_service", 60.0 if server else 20.0)
    yield from _steps({name: wanted[name] for name in wanted if name not in refused}, new, start)
    for name in sorted(refused):
        yield Outcome(host=name, task=start[0], status=Status.FAILED, seconds=30, action=start[1], result={"msg": refused[name]})
    for name in new - set(refused) if not request.check else ():
        world.hosts[name]["rke2"] = wanted[name] | {"since": world.now, "kept": _kept(world.hosts[name].get("rke2"), wanted[name])}
    world.wake()
    for name in wanted:
        facts = _facts(world, name, service, name in new)
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


_TAKE = "Take no new machine for the one that had its name"
_NAMESAKE = (
    "{0} has joined no cluster yet, and this one still has a Node of its name: RKE2 would refuse the new machine's node password; "
    "`bringup replace-node SPEC --hosts {0}` has the cluster forget the old machine and brings this one in"
)
"""What the role says of a machine whose name another one registered with (peers §4)."""
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


def _first_address(cidr: str) -> str:
    """The API's own service has the first address of the service network."""
    return str(ipaddress.ip_network(cidr.split(",")[0]).network_address + 1)


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


# ---- pods --------------------------------------------------------------------------------------------------------------------


@pods("component", "etcd")
def etcd(world: World, _pod: Obj, node: str) -> Behaviour:
    """The etcd member of a server."""
    if world.fault("etcd_member_missing", node):
        return Stuck(reason="CrashLoopBackOff", message="back-off 5m0s restarting failed container=etcd")
    return Run()


@pods("component", "kube-apiserver")
def apiserver(world: World, _pod: Obj, node: str) -> Behaviour:
    """The API server of a server. The emulated one answers whatever becomes of it."""
    if world.fault("apiserver_restarts", node):
        return Exit(code=137, message="OOMKilled", seconds=20)
    return Run()


@check("dns")
def dns(world: World, pod: Obj, node: str) -> Behaviour:
    """What the pod of one node resolved and reached (`dns_ring.sh`); the script always ends with 0."""
    report = _asked(world, pod, node)
    if any(entry["name"] == "INGRESS_HOST" for entry in pod["spec"]["containers"][0].get("env") or ()):
        dead = world.fault("ingress_dead", node)
        report |= {"ingress": report["peer"] if dead else node, "own": not dead}
        report["error"] = report["error"] or (f"wget: can't connect to remote host ({node}): Connection refused" if dead else "")
    return Exit(message=report, log=f"{report}\n", seconds=4)


def _asked(world: World, pod: Obj, node: str) -> Obj:
    peer, before = (_beside(world, pod, names) for names in (world.fleet.after(node), world.fleet.before(node)))
    cut = {name for name in (node, peer, before) if name and world.fault("overlay_broken", name)}
    service, reached = world.hosts[node]["rke2"]["service"], bool(peer) and not cut & {node, peer}
    report: Obj = {"node": node, "resolved": service, "service": service, "vip": peer if reached else node, "peer": peer}
    report |= {"named": report["vip"], "before": "" if cut & {node, before} else before, "reached": reached, "error": ""}
    if peer and not reached:
        report["error"] = f"dial tcp: connect to pod on {peer}: i/o timeout"
    if world.fault("kube_proxy_rules_missing", node):
        report |= {"vip": "", "error": f"wget: can't connect to remote host ({service}): Connection timed out"}
    elif world.fault("dns_broken") or world.fault("dns_dead_on_nodes", node):
        report["error"] = "nslookup: read: Connection refused; connection timed out; no servers could be reached"
    else:
        return report
    return report | {"resolved": "", "named": "", "peer": "", "before": "", "reached": False}


def _beside(world: World, pod: Obj, names: Iterable[str]) -> str:
    """The first of these hosts whose Node takes a pod of this check too; empty where there is none."""
    found = ((name, world.find(NODES, name)) for name in names)
    return next((name for name, node in found if node is not None and not admits(node, pod["spec"])), "")


@pods("k8s-app", "kube-dns")
def coredns(world: World, _pod: Obj, node: str) -> Behaviour:
    """CoreDNS runs and reports ready even where its answers do not reach the pods: only a look-up shows that."""
    return Run(ready=not world.fault("coredns_not_ready", node))


ROLES = (Rke2, Nodes)
