"""Stage rke2: the objects that RKE2's servers create, and the pods of the servers and of the DNS check."""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Iterable

from workflows.rehearsal.simulator.api.api_kinds import CRDS, DAEMON_SETS, HELM_CHARTS, NODES, PODS, Obj, definitions
from workflows.rehearsal.simulator.controllers.node_objects import Nodes
from workflows.rehearsal.simulator.controllers.scheduler import admits
from workflows.rehearsal.simulator.controllers.simulated_pods import (
    Behaviour,
    Exit,
    LongRunning,
    blocked_by,
    check,
    environment,
    pod_program,
)
from workflows.rehearsal.simulator.stages.rke2 import rke2_charts
from workflows.rehearsal.simulator.world import Changes, World

STATIC = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "cloud-controller-manager")
"""Static pods of each server. RKE2 gives them the labels `component=NAME` and `tier=control-plane`."""


SITE_DNS, FALLBACK_DNS = "192.0.2.53", "8.8.8.8"
"""DNS server of the site, and the one that RKE2 gives CoreDNS where resolv.conf names only loopback or link-local servers."""
SEARCH_DOMAIN = "hpc.example.org"
"""Search domain whose wildcard record answers for every name under fault `search_domain_catches_all`."""


class Rke2Servers:
    """Simulated RKE2 servers: the charts that RKE2 packages (as HelmCharts for the helm-controller), and static pods."""

    name = "rke2"
    kinds = (NODES, HELM_CHARTS, PODS, DAEMON_SETS, CRDS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Create the packaged HelmCharts once a server's Node exists, and the static pods of each such server."""
        servers = [
            name
            for name, state in world.hosts.items()
            if "rke2" in state and state["rke2"]["server"] and world.find(NODES, name) is not None
        ]
        if not servers:
            return
        for definition in definitions("helm.cattle.io"):
            world.create(CRDS, definition)
        state = world.hosts[servers[0]]["rke2"]
        for chart in rke2_charts.packaged_charts(state["cni"], state["ingress"]):
            world.create(HELM_CHARTS, chart)
        names = {f"{component}-{server}" for component in STATIC for server in servers}
        if changed.concern(NODES) or not names.isdisjoint(at.name for at in changed.refs(PODS)):
            for server in servers:
                for component in STATIC:
                    world.create(PODS, _static_pod(world, component, server))


def _static_pod(world: World, component: str, server: str) -> Obj:
    node, name = world.find(NODES, server), f"{component}-{server}"
    return {
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": {"component": component, "tier": "control-plane"},
            "annotations": {"kubernetes.io/config.mirror": f"simulated-{name}", "kubernetes.io/config.source": "file"},
            "ownerReferences": [NODES.owner(node)] if node else [],
        },
        "spec": {
            "nodeName": server,
            "hostNetwork": True,
            "priorityClassName": "system-cluster-critical",
            "containers": [{"name": component, "image": f"rancher/{component}:simulated"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }


# ---- pods --------------------------------------------------------------------------------------------------------------------


blocked_by("etcd_member_missing", "component", "etcd", "back-off 5m0s restarting failed container=etcd")


@pod_program("component", "kube-apiserver")
def apiserver(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play a kube-apiserver pod: it runs, or keeps ending under `apiserver_restarts`. The emulated API answers anyway."""
    if world.fault("apiserver_restarts", node):
        return Exit(code=137, message="OOMKilled", seconds=20)
    return LongRunning()


@check("dns")
def dns(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `dns` on a node: report the names that its pod resolved and the pods that it reached.

    The report has the form that `dns_ring.sh` prints; the script always exits with 0.
    """
    report = _asked(world, pod, node) | {"caught": ""}
    lost = not report["resolved"] or bool(world.fault("upstream_dns_dead"))
    report["outside"] = {name: "" if lost else _address(name) for name in environment(pod).get("OUTSIDE", "").split()}
    if world.fault("search_domain_catches_all") and not lost:
        report["caught"] = SEARCH_DOMAIN
    if any(entry["name"] == "INGRESS_HOST" for entry in pod["spec"]["containers"][0].get("env") or ()):
        dead = world.fault("ingress_dead", node)
        report |= {"ingress": report["peer"] if dead else node, "own": not dead}
        report["error"] = report["error"] or (f"wget: can't connect to remote host ({node}): Connection refused" if dead else "")
    return Exit(message=report, log=f"{report}\n", seconds=4)


def _asked(world: World, pod: Obj, node: str) -> Obj:
    peer, before = (_beside(world, pod, names) for names in (world.fleet.after(node), world.fleet.before(node)))
    cut = {name for name in (node, peer, before) if name and world.fault("overlay_broken", name)}
    service, reached = world.hosts[node]["rke2"]["service"], bool(peer) and not cut & {node, peer}
    vip = peer if reached else node
    report: Obj = {"node": node, "resolved": service, "service": service, "vip": vip, "peer": peer, "named": vip}
    report |= {"before": "" if cut & {node, before} else before, "reached": reached, "large": reached, "error": ""}
    if peer and not reached:
        report["error"] = f"dial tcp: connect to pod on {peer}: i/o timeout"
    if world.fault("kube_proxy_rules_missing", node):
        report |= {"vip": "", "error": f"wget: can't connect to remote host ({service}): Connection timed out"}
    elif world.fault("dns_broken") or world.fault("dns_dead_on_nodes", node):
        report["error"] = "nslookup: read: Connection refused; connection timed out; no servers could be reached"
    else:
        return report
    return report | {"resolved": "", "named": "", "peer": "", "before": "", "reached": False, "large": False}


def _address(name: str) -> str:
    """Return an address of a name outside of the cluster, from the networks for documentation."""
    return str(ipaddress.ip_address("198.51.100.0") + zlib.crc32(name.encode()) % 254 + 1)


@check("host")
def host(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `host` on a server: report what its DNS servers and the Service `answer` answered to its own network.

    The report has the form that `host_probe.sh` prints; the script always exits with 0.
    """
    dead = world.fault("upstream_dns_dead")
    name = next(iter(environment(pod).get("OUTSIDE", "").split()), "")
    upstream = {"server": FALLBACK_DNS if dead else SITE_DNS, "answer": "" if dead or not name else _address(name)}
    answered = [other for other in _answering(world, pod, node) if not _is_cut(world, node, other)]
    through = bool(set(answered) - {node}) or "ALONE" in environment(pod)
    report: Obj = {"node": node, "upstreams": [upstream], "answered": answered, "unanswered": 0 if through else 12}
    report["error"] = "" if through else "wget: download timed out"
    return Exit(message=report, log=f"{report}\n", seconds=15)


def _answering(world: World, pod: Obj, node: str) -> list[str]:
    """Return the nodes that have a pod behind Service `answer`; the next node that would take one if none is placed yet."""
    pods = world.select(PODS, pod["metadata"]["namespace"], {"bringup/check": "answer"})
    placed = {str(other["spec"]["nodeName"]) for other in pods if other["spec"].get("nodeName")}
    return sorted(placed) or [name for name in (node, _beside(world, pod, world.fleet.after(node))) if name]


def _is_cut(world: World, node: str, other: str) -> bool:
    """Return True if the host network of a node does not reach a Service's pod on the other node."""
    if world.fault("kube_proxy_rules_missing", node):
        return True
    cut = world.fault("services_cut_from_hosts", node) or any(world.fault("overlay_broken", name) for name in (node, other))
    return bool(cut) and node != other


@check("answer")
def answer(_world: World, _pod: Obj, _node: str) -> Behaviour:
    """Play a pod behind Service `answer`: it runs until it is deleted."""
    return LongRunning()


def _beside(world: World, pod: Obj, names: Iterable[str]) -> str:
    """Return the first of these hosts that would take a pod of this check too; empty if there is none."""
    pairs = ((name, world.find(NODES, name)) for name in names)
    return next((name for name, node in pairs if node is not None and not admits(node, pod["spec"])), "")


@pod_program("k8s-app", "kube-dns")
def coredns(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play a CoreDNS pod. Only the fault `coredns_not_ready` makes it not ready, whatever keeps its answers from pods."""
    return LongRunning(ready=not world.fault("coredns_not_ready", node))


ROLES = (Rke2Servers, Nodes)
