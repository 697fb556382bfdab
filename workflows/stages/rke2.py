"""Stage rke2: servers, then agents in shards, then the cluster itself says whether it is whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from steps.contract.task import Verb
from workflows.spec.access import Rke2
from workflows.spec.cluster import ClusterSpec
from workflows.spec.derived import MAX_PODS, max_pods, node_labels
from workflows.spec.ranges import compress
from workflows.stages import objects, rights
from workflows.stages.access import JOIN_TOKEN, ssh_arguments
from workflows.stages.site import Site
from workflows.stages.stage import Change, Object, Rule, Stage, Step, When, task

ID: Final = "rke2"
SERVERS_SECONDS = 3600
"""Servers join one by one (etcd takes one learner at a time); the first one pulls or imports 2 GB of images."""
AGENTS_SECONDS = 3600
"""A shard of 50 agents in batches of `join_batch`, each within about ten minutes."""
CONTROL_SECONDS = 900
NODES_SECONDS = 900
DNS_SECONDS = 600
DNS_POD_SECONDS = 240
"""How long a pod of the ring waits for its neighbours: the slowest image pull among them."""

NETWORK = {
    "canal": "DaemonSet rke2-canal",
    "cilium": "DaemonSet cilium",
    "calico": "DaemonSet calico-node",
    "flannel": "DaemonSet kube-flannel-ds",
    "multus": "DaemonSet rke2-multus",
}
"""Workload of each network plugin that RKE2 installs. Not verified: the names for calico, cilium and flannel."""
DNS = "Deployment rke2-coredns-rke2-coredns"


def build(site: Site) -> Stage | None:
    """RKE2 on every machine; a cluster without agents has no task for them."""
    spec, has_agents = site.spec, site.count("agent") > 0
    plays = (_servers(spec), *((_agents(spec),) if has_agents else ()))
    after = plays[-1].name
    steps = (*plays, _control(site, after), _nodes(site), _functional())
    members = "agent" if has_agents else "server"
    gates = tuple(f"{ID}/{step.name}" for step in steps)
    return Stage(
        id=ID,
        title="Kubernetes (RKE2)",
        steps=(*steps, _judge(site, members, [step.name for step in steps])),
        gates=gates,
        changes=_changes(site, spec.rke2),
        rollback="rke2-uninstall.sh on every machine and `kubectl delete node`; after an upgrade: stop all servers, "
        "install the release before, and restore the etcd snapshot that was taken before the upgrade",
    )


def _changes(site: Site, rke2: Rke2) -> tuple[Change, ...]:
    by_role = {
        role: compress(machine.name for machine in site.machines if machine.role == role)
        for role in ("server", "agent")
        if site.count(role)
    }
    return tuple(Change(what=f"RKE2 {rke2.version} as {role}", where=names) for role, names in by_role.items())


def _servers(spec: ClusterSpec) -> Step:
    arguments = _play(spec, "rke2_server", "server") | {"kubeconfig_from": "kubeconfig", "keep": {"token": JOIN_TOKEN}}
    expectations = {"version": spec.rke2.version, "service": "rke2-server"}
    return Step(
        task=task(ID, "servers", Verb.PLAY, deadline=SERVERS_SECONDS, arguments=arguments, expectations=expectations),
        rules=rights.CLAIM,
    )


def _agents(spec: ClusterSpec) -> Step:
    arguments = _play(spec, "rke2_agent", "agent") | {"fanned": True}
    expectations = {"version": spec.rke2.version, "service": "rke2-agent"}
    return Step(
        task=task(ID, "agents", Verb.PLAY, deadline=AGENTS_SECONDS, arguments=arguments, expectations=expectations),
        after=("servers",),
        fan_out="agents",
        rules=rights.CLAIM,
    )


def _play(spec: ClusterSpec, playbook: str, role: str) -> Object:
    return {
        "playbook": playbook,
        "ssh": ssh_arguments(spec),
        "gate": f"{ID}/{role}s",
        "select": role,
        "variables": _variables(spec),
        "secret_variables": {"rke2_token": JOIN_TOKEN},
    }


def _variables(spec: ClusterSpec) -> Object:
    """Variables of the role rke2; what the spec leaves open is left out, so that the role's default holds."""
    rke2, servers = spec.rke2, spec.servers
    optional = {"rke2_registry_mirror": rke2.registry_mirror, "rke2_artifacts": rke2.artifacts}
    return {
        "rke2_version": rke2.version,
        "rke2_cni": list(rke2.cni),
        "rke2_registration_address": spec.registration_address,
        "rke2_tls_san": list(dict.fromkeys((spec.registration_address, *rke2.tls_san))),
        "rke2_cluster_cidr": rke2.cluster_cidr,
        "rke2_service_cidr": rke2.service_cidr,
        "rke2_profile": rke2.profile,
        "rke2_join_batch": rke2.join_batch,
        "rke2_kubelet_args": dict(sorted({MAX_PODS: str(max_pods(spec)), **rke2.kubelet_args}.items())),
        "rke2_first_server": servers[0].name if servers else "",
        "rke2_servers": [machine.name for machine in servers],
        "rke2_node_labels": {group: _pairs(node_labels(spec, group)) for group in spec.hosts},
        "rke2_node_taints": {name: list(group.taints) for name, group in spec.hosts.items() if group.taints},
        "rke2_host_labels": _host_labels(spec),
        **{key: value for key, value in optional.items() if value is not None},
    }


def _host_labels(spec: ClusterSpec) -> Object:
    """Labels of the hosts that differ from their group."""
    overrides = ((host, group.overrides[host]) for group in spec.hosts.values() for host in group.overrides)
    return {host: _pairs(override.labels) for host, override in overrides if override.labels}


def _pairs(labels: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in sorted(labels.items())]


def _control(site: Site, after: str) -> Step:
    workloads = [DNS, *(NETWORK[plugin] for plugin in site.spec.rke2.cni)]
    spare = site.count("agent") - site.needed(ID, "agent")
    return Step(
        task=task(
            ID,
            "control",
            Verb.WAIT,
            deadline=CONTROL_SECONDS,
            arguments={"gate": f"{ID}/control", "select": "server", "stable_seconds": 10, "namespaces": ["kube-system"]},
            expectations={"workloads": workloads, "spare": spare},
        ),
        after=(after,),
        rules=(
            Rule(groups=("",), resources=("nodes",), verbs=("list",)),
            Rule(
                groups=("apps",),
                resources=("deployments", "daemonsets"),
                verbs=("list",),
                namespaces=("kube-system", "calico-system"),
            ),
            Rule(groups=("batch",), resources=("jobs",), verbs=("list",), namespaces=("kube-system",)),
            *rights.DIAGNOSE,
        ),
    )


def _nodes(site: Site) -> Step:
    taints = sorted({taint for group in site.spec.hosts.values() for taint in group.taints})
    return Step(
        task=task(
            ID,
            "nodes",
            Verb.WAIT,
            deadline=NODES_SECONDS,
            arguments={"gate": f"{ID}/nodes", "select": "all", "decides": False, "namespaces": ["kube-system"]},
            expectations={"version": site.spec.rke2.version, "taints": taints},
        ),
        after=("control",),
        rules=(
            Rule(groups=("",), resources=("nodes",), verbs=("list",)),
            Rule(groups=("coordination.k8s.io",), resources=("leases",), verbs=("list",), namespaces=("kube-node-lease",)),
            *rights.DIAGNOSE,
        ),
    )


def _functional() -> Step:
    check = "dns"
    return Step(
        task=task(
            ID,
            "functional",
            Verb.JOB,
            deadline=DNS_SECONDS,
            arguments={
                "gate": f"{ID}/functional",
                "objects": [objects.check_namespace(), _service(check), _ring(check)],
                "checks": [check],
                "select": "all",
                "after": ["nodes"],
                "namespaces": ["kube-system"],
            },
        ),
        after=("nodes",),
        rules=rights.check_rules(
            Rule(groups=("",), resources=("services",), verbs=("get", "create", "delete"), namespaces=(objects.CHECK_NAMESPACE,))
        ),
    )


def _service(check: str) -> Object:
    """A headless Service gives each pod of the ring its name, before it is ready too."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": objects.check_metadata(ID, check),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {objects.CHECK_LABEL: check},
            "ports": [{"name": "http", "port": 8080}],
        },
    }


def _ring(check: str) -> Object:
    """One pod on each node: it resolves the API's name, asks the next pod which node it is on, and answers the one before it."""
    environment = [
        objects.node_name(),
        {"name": "COUNT", "value": "@count_text"},
        {"name": "SECONDS_TO_WAIT", "value": str(DNS_POD_SECONDS)},
    ]
    pod = {
        "subdomain": check,
        "containers": [objects.container(objects.TINY_IMAGE, objects.script("dns_ring.sh"), env=environment)],
    }
    return objects.per_node_job(ID, check, pod, seconds=DNS_SECONDS)


def _judge(site: Site, members: str, names: list[str]) -> Step:
    about = {"servers": "server", "agents": "agent"}
    checks = [{"task": name, "gate": f"{ID}/{name}"} | ({"select": about[name]} if name in about else {}) for name in names]
    arguments: Object = {
        "checks": checks,
        "needed": site.needed(ID, members),
        "members": members,
        "required": "server",
        "cordon": True,
    }
    return Step(
        task=task(ID, "judge", Verb.JUDGE, deadline=600, arguments=arguments),
        after=tuple(names),
        when=When.ANYHOW,
        rules=(Rule(groups=("",), resources=("nodes",), verbs=("get", "patch")), *rights.CLAIM),
    )
