"""Stage rke2: install servers, then agents in shards, then check the cluster; an operation such as upgrade changes its plays."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from steps.contract.fleet import SHARD_SIZE
from steps.contract.host_ranges import fold
from steps.contract.runs.operation import RELEASES, OperationKind
from steps.contract.task import Verb
from workflows.spec.cluster_spec import GROUP_LABEL, ClusterSpec, max_pods, node_labels, own_taints
from workflows.spec.sections.infrastructure import Rke2Settings
from workflows.spec.sections.rke2_parts import MAX_PODS, registry_secrets
from workflows.stages import manifest_objects, rights, rke2_check
from workflows.stages.host_access import JOIN_TOKEN, api_arguments, ssh_arguments
from workflows.stages.os_prep import node_profile
from workflows.stages.stage import Change, Object, Rule, Site, Stage, Step, judge_step, task

DATA, STORE = "/var/lib/rancher/rke2/server/db", "/var/lib/rancher/download"
RESET = "`bringup reset SPEC`; data of the cluster is lost"
FORWARD = "write the newer release into rke2.version again, and `bringup upgrade SPEC`"
IN_PLACE = " where another node takes its pods"
HOW = {
    OperationKind.REPLACE_NODE: {
        "server": ", once the cluster forgot the old machine's Node and etcd member",
        "agent": ", once the cluster forgot the old machine's Node",
    },
    OperationKind.UPGRADE: {
        "server": ", after an etcd snapshot: one at a time, each drained before" + IN_PLACE,
        "agent": ", {batch} at a time, each drained before" + IN_PLACE,
    },
    OperationKind.ROLLBACK: {
        "server": " again, all stopped at once, with etcd set back to its snapshot from before the upgrade",
        "agent": " again, {batch} at a time, each drained before" + IN_PLACE,
    },
}
"""Operation → role → end of the sentence that says how machines get their RKE2 release; in other operations they simply join."""


def servers(site: Site) -> Object:
    """Return the arguments that the servers' play has in addition to those of every play of the stage.

    `together`: a server that fails stops the servers after it. `everyone`: servers that the operation only reads take part too. A
    rollback adds `may_be_down`, because the cluster may be down, and `restores`, because the restored etcd snapshot has an old
    lease.
    """
    arguments: Object = {"together": True} | ({"everyone": True} if site.operation.is_partial else {})
    return arguments | ({"may_be_down": True, "restores": True} if site.operation.kind is OperationKind.ROLLBACK else {})


def operation_variables(site: Site, role: str) -> Object:
    """Return the role variables of an operation: servers that are only read, and replaced hosts whose old Node must be deleted."""
    operation, names = site.operation, [machine.name for machine in site.machines if machine.role == role]
    result: Object = {}
    if role == "server" and operation.is_partial:
        result["rke2_untouched"] = [name for name in names if not operation.touches(name)]
    if operation.kind is OperationKind.REPLACE_NODE and (replaced := operation.touched(names)):
        result["rke2_replaced"] = replaced
    return result


def changes(site: Site) -> tuple[Change, ...]:
    """Return one change for each role whose machines the plays touch, for display in the plan."""
    how, rke2 = HOW.get(site.operation.kind, {}), site.spec.rke2
    return tuple(
        Change(what=f"RKE2 {rke2.version} as {role}{how.get(role, '').format(batch=rke2.upgrade_batch)}", where=fold(names))
        for role in ("server", "agent")
        if (names := site.changeable_hosts(role))
    )


def way_back(site: Site) -> str:
    """Return the sentence in the plan that tells a person how to undo the operation."""
    if site.operation.kind is OperationKind.ROLLBACK:
        return FORWARD
    if site.operation.kind is not OperationKind.UPGRADE:
        return RESET
    # the role rke2 gives the snapshot this name (playbooks/roles/rke2/vars/main.yml)
    snapshot = f"{DATA}/snapshots/bringup-before-{re.sub('[^A-Za-z0-9.-]', '-', site.spec.rke2.version)}-*"
    return (
        "a host that does not come to a patch release goes back by itself; else write the release before into rke2.version, and "
        f"`bringup rollback SPEC`: etcd goes back to {snapshot}, without what was written since; "
        f"by hand, as {STORE}/way-back.txt says on a server that failed over a minor"
    )


PLAY_SECONDS = 3600
"""Lower bound of a play's time limit in seconds.

Servers join one by one (etcd takes one learner at a time), and the first pulls or imports 2 GB of images. A shard of 50 agents
joins in batches of `join_batch`, each within about ten minutes.
"""
READY_SECONDS = 900
"""Longest time in seconds until a host is ready, images included (`playbooks/roles/rke2/defaults`)."""


def variables(rke2: Rke2Settings) -> Object:
    """Return the variables of the role rke2 for those settings of the spec that differ from the role's defaults."""
    default = type(rke2).model_construct()
    plain = {
        "rke2_source": rke2.source,
        "rke2_images": list(rke2.images),
        "rke2_kubelet_config": dict(rke2.kubelet_config),
        "rke2_audit": rke2.audit if rke2.audit != default.audit else None,
        "rke2_upgrade_batch": rke2.upgrade_batch if rke2.upgrade_batch != default.upgrade_batch else None,
        "rke2_drain_seconds": rke2.drain_seconds if rke2.drain_seconds != default.drain_seconds else None,
        "rke2_registries": _registries(rke2),
    }
    result = {key: value for key, value in plain.items() if value}
    if rke2.etcd_snapshots != default.etcd_snapshots:
        result |= {"rke2_snapshot_schedule": rke2.etcd_snapshots.schedule, "rke2_snapshots_kept": rke2.etcd_snapshots.keep}
    if rke2.virtual_address:
        result["rke2_virtual_address"] = rke2.virtual_address.model_dump()
    return result


def further_settings(spec: ClusterSpec) -> Object:
    """Return `{"rke2_config": …}` with further keys of RKE2's config.yaml; empty if there are none.

    The keys are SELinux labels where SELinux enforces, and no fallback to registries behind mirrors.
    """
    node = node_profile(spec)
    labelled = node.get("selinux") == "enforcing" and "rhel" in node["system"]["ids"]
    config = {"selinux": True} if labelled else {}
    config |= {} if spec.rke2.registry_fallback else {"disable-default-registry-endpoint": True}
    return {"rke2_config": config} if config else {}


def secret_variables(rke2: Rke2Settings) -> dict[str, str]:
    """Return role variable → secret file for the credentials and certificates of registries."""
    return {f"rke2_{file}": file for file, _, _, _ in registry_secrets(rke2.registries)}


def _registries(rke2: Rke2Settings) -> Object:
    """Return registry name → settings as the role takes them; `secrets` names variables that hold secrets, never their content."""
    secrets: dict[str, dict[str, str]] = {}
    for file, name, part, _ in registry_secrets(rke2.registries):
        secrets.setdefault(name, {})[part] = f"rke2_{file}"
    settings: dict[str, Object] = {}
    for name, registry in sorted(rke2.registries.items()):
        entry: Object = {
            "endpoints": list(registry.endpoints),
            "rewrite": dict(registry.rewrite),
            "username": registry.username,
            "insecure": registry.insecure,
            "secrets": secrets.get(name),
        }
        settings[name] = {key: value for key, value in entry.items() if value}
    return settings


def play_seconds(rke2: Rke2Settings, batches: int) -> int:
    """Return the time limit of a play in seconds: every batch may drain its hosts and wait until they are ready."""
    return max(PLAY_SECONDS, batches * (rke2.drain_seconds + READY_SECONDS))


ID: Final = "rke2"
MOST_JOINING = 50
"""Largest number of agents that join at one time over all shards: RKE2's documentation advises batches of 50 or less."""
CONTROL_SECONDS = 900
NODES_SECONDS = 900
MOST_NAMES = 1500
"""Largest total length in characters of host ranges in a task. Above it, a node's group is known only by its label."""

NETWORK = {
    "canal": "DaemonSet rke2-canal",
    "cilium": "DaemonSet cilium",
    "calico": "DaemonSet calico-node",
    "flannel": "DaemonSet kube-flannel-ds",
    "multus": "DaemonSet rke2-multus",
}
"""Network plugin → the workload that RKE2 installs for it. Not verified: the names for calico, cilium and flannel."""
NETWORK_PODS = {
    "canal": ("kube-system", "k8s-app=canal"),
    "cilium": ("kube-system", "k8s-app=cilium"),
    "calico": ("calico-system", "k8s-app=calico-node"),
}
"""Network plugin → namespace and label of its pods, where known; the gate judges other plugins by their workload alone."""
DNS = "Deployment rke2-coredns-rke2-coredns"


def build(site: Site) -> Stage | None:
    """Return stage rke2, which puts RKE2 on every machine. A cluster without agents has no task for agents."""
    spec, members = site.spec, "agent" if site.count("agent") else "server"
    plays = (_servers(site), *((_agents(site),) if site.changeable_hosts("agent") else ()))
    steps = (
        *plays,
        _control(site, plays[-1].name),
        _nodes(site, [play.name for play in plays]),
        _host_network(site),
        _functional(site),
    )
    gates = tuple(f"{ID}/{step.name}" for step in steps)
    return Stage(
        id=ID,
        title="Kubernetes (RKE2)",
        # an upgrade or rollback drains nodes, so shards go one after another
        parallelism=1 if site.operation.kind in RELEASES else max(1, MOST_JOINING // spec.rke2.join_batch),
        steps=(*steps, _judge(site, members, [step.name for step in steps])),
        gates=gates,
        changes=changes(site),
        rollback=way_back(site),
    )


def _servers(site: Site) -> Step:
    spec, operation_arguments = site.spec, servers(site)
    arguments = _play(site, "server") | operation_arguments | {"kubeconfig_from": "kubeconfig", "keep": {"token": JOIN_TOKEN}}
    arguments |= api_arguments(spec)
    expectations = {"version": spec.rke2.version, "service": "rke2-server", "etcd": {"fsync_p99": spec.rke2.etcd_fsync_ms / 1000}}
    deadline = play_seconds(spec.rke2, site.count("server"))
    return Step(
        task=task(ID, "servers", Verb.PLAY, deadline=deadline, arguments=arguments, expectations=expectations),
        rules=rights.CLAIM,
    )


def _agents(site: Site) -> Step:
    spec = site.spec
    arguments = _play(site, "agent") | {"fanned": True, "after": "servers"}
    expectations = {"version": spec.rke2.version, "service": "rke2-agent"}
    # the plan cannot know which agents upgrade and which join, so the smaller batch bounds the time
    deadline = play_seconds(spec.rke2, math.ceil(SHARD_SIZE / min(spec.rke2.upgrade_batch, spec.rke2.join_batch)))
    return Step(
        task=task(ID, "agents", Verb.PLAY, deadline=deadline, arguments=arguments, expectations=expectations),
        after=("servers",),
        fan_out="agents",
        rules=rights.CLAIM,
    )


def _play(site: Site, role: str) -> Object:
    spec = site.spec
    return {
        "playbook": f"rke2_{role}_rollback" if site.operation.kind is OperationKind.ROLLBACK else f"rke2_{role}",
        "ssh": ssh_arguments(spec),
        "gate": f"{ID}/{role}s",
        "select": role,
        "variables": _variables(spec) | operation_variables(site, role),
        "secret_variables": {"rke2_token": JOIN_TOKEN, **secret_variables(spec.rke2)},
        "helpers": "server",
    }


def _variables(spec: ClusterSpec) -> Object:
    """Return the variables of the role rke2. Settings that the spec leaves open are absent, so that the role's defaults hold."""
    rke2, servers = spec.rke2, spec.servers
    optional = {
        "rke2_registry_mirror": rke2.registry_mirror,
        "rke2_artifacts": rke2.artifacts,
        "rke2_ingress_controller": rke2.ingress_controller,
    }
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
        # the first server starts the cluster, the others join it
        "rke2_first_server": servers[0].name if servers else "",
        "rke2_server_addresses": [machine.address for machine in servers],
        "rke2_node_labels": {group: _pairs(node_labels(spec, group)) for group in spec.hosts},
        "rke2_node_taints": {name: list(group.taints) for name, group in spec.hosts.items() if group.taints},
        "rke2_host_labels": _host_labels(spec),
        **{key: value for key, value in optional.items() if value is not None},
        **variables(rke2),
        **further_settings(spec),
    }


def _host_labels(spec: ClusterSpec) -> Object:
    """Return host → its labels as `key=value`, for hosts whose labels differ from those of their group."""
    overrides = ((host, group.overrides[host]) for group in spec.hosts.values() for host in group.overrides)
    return {host: _pairs(override.labels) for host, override in overrides if override.labels}


def _pairs(labels: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in sorted(labels.items())]


def _control(site: Site, after: str) -> Step:
    ingress, spaces = rke2_check.controller(site), ("kube-system", "calico-system")
    workloads = [DNS, *(NETWORK[plugin] for plugin in site.spec.rke2.cni), *([ingress.workload] if ingress else [])]
    expectations = {"workloads": workloads, "spare": site.count("agent") - site.needed(ID, "agent")}
    arguments: Object = {"gate": f"{ID}/control", "select": "server", "stable_seconds": 10, "namespaces": ["kube-system"]}
    arguments["passed"] = ["servers"]
    return Step(
        task=task(ID, "control", Verb.WAIT, deadline=CONTROL_SECONDS, arguments=arguments, expectations=expectations),
        after=(after,),
        rules=(
            Rule(groups=("",), resources=("nodes",), verbs=("list",)),
            Rule(groups=("apps",), resources=("deployments", "daemonsets"), verbs=("list",), namespaces=spaces),
            Rule(groups=("batch",), resources=("jobs",), verbs=("list",), namespaces=("kube-system",)),
            *rights.DIAGNOSE,
        ),
    )


def _nodes(site: Site, plays: Iterable[str]) -> Step:
    spec, groups, hosts = site.spec, _groups(site.spec), _host_labels(site.spec)
    plugin = next((name for name in spec.rke2.cni if name in NETWORK_PODS), "")
    host_pairs = (pair for pairs in hosts.values() for pair in pairs)
    labels = {key for group in groups.values() for key in group["labels"]} | {pair.partition("=")[0] for pair in host_pairs}
    arguments: Object = {"gate": f"{ID}/nodes", "select": "all", "decides": False, "namespaces": ["kube-system"]}
    arguments |= {"labels": sorted(labels), "passed": list(plays)}
    expectations: Object = {
        "version": spec.rke2.version,
        "groups": groups,
        "host_labels": {host: dict(pair.split("=", 1) for pair in pairs) for host, pairs in hosts.items()},
    }
    if own_taints(spec):
        expectations["own_taints"] = list(own_taints(spec))
    if plugin:
        arguments |= dict(zip(("network_namespace", "network_pods"), NETWORK_PODS[plugin], strict=True))
        expectations["network"] = plugin
    return Step(
        task=task(ID, "nodes", Verb.WAIT, deadline=NODES_SECONDS, arguments=arguments, expectations=expectations),
        after=("control",),
        rules=(
            Rule(groups=("",), resources=("nodes",), verbs=("list",)),
            Rule(groups=("coordination.k8s.io",), resources=("leases",), verbs=("list",), namespaces=("kube-node-lease",)),
            *rights.DIAGNOSE,
        ),
    )


def _groups(spec: ClusterSpec) -> Object:
    """Return the hosts (as ranges), labels and taints of each group, by the value of the label that names the group.

    Ranges that are too long for a task are left empty (see `MOST_NAMES`).
    """
    few = sum(len(text) for group in spec.hosts.values() for text in group.ranges) <= MOST_NAMES
    return {
        node_labels(spec, name)[GROUP_LABEL]: {
            "hosts": ",".join(group.ranges) if few else "",
            "labels": node_labels(spec, name),
            "taints": list(group.taints),
        }
        for name, group in spec.hosts.items()
    }


def _host_network(site: Site) -> Step:
    name = next(iter(rke2_check.outside_names(site)), "")
    return manifest_objects.check_step(
        ID,
        f"{ID}/host_network",
        rke2_check.HOST,
        rke2_check.host_objects(site),
        name="host_network",
        deadline=rke2_check.JOB_SECONDS,
        expectations=({"outside": name} if name else {}) | ({"alone": True} if len(site.machines) == 1 else {}),
        rules=(manifest_objects.SERVICE_RIGHTS,),
        select="server",
        checks=[rke2_check.HOST, rke2_check.ANSWER],
        namespaces=["kube-system"],
    )


def _functional(site: Site) -> Step:
    ingress, names = rke2_check.controller(site), rke2_check.outside_names(site)
    further: Object = {"ingress_pods": ingress.pods} if ingress else {}
    return manifest_objects.check_step(
        ID,
        f"{ID}/functional",
        rke2_check.CHECK,
        rke2_check.check_objects(site),
        deadline=rke2_check.JOB_SECONDS,
        expectations=({"ingress": True} if ingress else {}) | ({"outside": list(names)} if names else {}),
        rules=rke2_check.rules(site),
        select="all",
        namespaces=["kube-system"],
        **further,
    )


def _judge(site: Site, members: str, names: list[str]) -> Step:
    about = {"servers": "server", "agents": "agent", "host_network": "server"}
    checks = [{"task": name, "gate": f"{ID}/{name}"} | ({"select": about[name]} if name in about else {}) for name in names]
    needed = site.needed(ID, members)
    return judge_step(ID, checks, rules=rights.CORDON, needed=needed, members=members, required="server")
