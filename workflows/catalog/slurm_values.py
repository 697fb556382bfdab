"""Values of Slurm's charts that are computed from a spec: node groups, partitions, QoS, home, topology, tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from steps.contract.host_ranges import fold
from steps.contract.node_taints import SUNK_LOCK, from_text
from workflows.spec import ClusterSpec
from workflows.spec.cluster_spec import GROUP_LABEL, advertised, ingress_groups, slinky_name, slurm_groups
from workflows.spec.gpu_pools import gpu_pools, pool_of
from workflows.spec.machines import Machine
from workflows.spec.sections.slurm_section import Partition, SlurmdSize, SlurmHome, SlurmQos

Object = dict[str, Any]

HOME_CLAIM = "slurm-home"
"""Name of the PersistentVolumeClaim of a shared /home that is made of a storage class."""
ETC_CONFIG_MAP = "slurm-etc-slurmctld"
"""ConfigMap with further files of the /etc/slurm of SUNK's controller."""
MARKS = "/run/bringup"
"""Folder of the marks in slurmd pods, as check `slurm-jobs` looks for them."""
TREE, ROOT = "tree", "root"
"""Names of the topology in topology.yaml, and of the switch above all leaf switches."""
JWT_SECRET = {"name": "slurm-auth-jwt", "key": "jwt.key"}
"""Secret of Slinky's chart `slurm` with the key that signs tokens (helm/slurm/templates/_slurm.tpl of slurm-operator)."""


def derived(spec: ClusterSpec) -> Object:
    """Return the derived values of Slurm's charts, which their values files refer to as `derived.NAME`."""
    groups = slurm_groups(spec)
    volumes = _home_volumes(spec.slurm.home)
    return {
        "slurm_groups": [_slurm_group(spec, name) for name in groups],
        "slurm_partitions": _slurm_partitions(spec),
        "slurm_conf": _slurm_conf(spec),
        "slurm_prolog": with_mark("prolog", spec.slurm.prolog),
        "slurm_epilog": with_mark("epilog", spec.slurm.epilog),
        "slurm_home": volumes,
        "slurm_topology": topology_file(spec),
        "slurm_tokens": [_token(token.user, int(token.lifetime.total_seconds())) for token in spec.slurm.tokens],
        "sunk_groups": [_sunk_group(spec, name) for name in groups],
        "sunk_gpu_types": {f"NVIDIA_{pool.accelerator.product}": _gres_type(pool.accelerator.product) for pool in gpu_pools(spec)},
        "sunk_conf": _sunk_conf(spec),
        "sunk_reserved": f"{spec.slurm.node.reserved_memory_gib * 1024}" if spec.slurm.node else "0",
        "database_affinity": _outside_slurm(spec),
        # of a Service inside the cluster the API server refuses a policy for traffic from outside
        "login_traffic": "" if spec.slurm.login.service == "ClusterIP" else "Local",
        "authorized_keys": "\n".join(spec.slurm.login.authorized_keys),
    }


def toleration(taint: str) -> dict[str, str]:
    """Return the Kubernetes toleration for a taint written as `key=value:effect` or `key:effect`."""
    tainted = from_text(taint)
    match = {"operator": "Equal", "value": tainted["value"]} if "value" in tainted else {"operator": "Exists"}
    return {"key": tainted["key"], "effect": tainted["effect"], **match}


def lock_toleration() -> dict[str, str]:
    """Return the toleration of SUNK's lock, which slurmd needs too: a NodeSet counts only nodes that its pods fit."""
    return toleration(f"{SUNK_LOCK}:NoExecute")


# ---- node groups ---------------------------------------------------------------------------------------------------------------


def _gres_type(product: str) -> str:
    """Return a GPU product as Slurm's GRES names it: `h200`."""
    return product.lower().replace("-", "_")


def _slurm_group(spec: ClusterSpec, name: str) -> Object:
    group, label, pool = spec.hosts[name], name.replace("_", "-"), pool_of(spec, name)
    gpu, resources = (pool.accelerator, advertised(pool.spec)) if pool else (None, ())
    # one request for all pods of the group: machines with fewer GPUs than the others set it
    gpus = min((machine.gpus for machine in spec.machines if machine.group == name), default=0)
    limits: Object = {resources[0]: gpus} if gpu and gpus and resources else {}
    if gpu and spec.fabric.kind != "none":
        limits[spec.fabric.resource_key] = spec.fabric.attachments
    if spec.slurm.node:
        limits |= _node_resources(spec.slurm.node)
    gres = f"gpu:{_gres_type(gpu.product)}:{gpus}" if gpu and gpus else ""
    return {
        "name": label,
        "size": len(group.names()),
        "selector": {GROUP_LABEL: label},
        "affinity": _required({GROUP_LABEL: [label]}),
        "limits": limits,
        "conf": {"Gres": [gres]} if gres else {},
        "gres": gres,
        "tolerations": [toleration(taint) for taint in group.taints],
    }


def _node_resources(node: SlurmdSize) -> Object:
    return {"cpu": node.cpus, "memory": f"{node.memory_gib}Gi"}


def _required(labels: Mapping[str, Iterable[str]]) -> Object:
    """Return a node affinity that requires each label to have one of its values."""
    terms = [{"key": key, "operator": "In", "values": list(values)} for key, values in labels.items()]
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    }


def _outside_slurm(spec: ClusterSpec) -> Object | None:
    """Return the node affinity of pods that must stay off SUNK's nodes; None if all nodes are Slurm's or have taints.

    SUNK's lock evicts pods without its toleration, and the object of the database has no published value for tolerations.
    """
    groups = [name.replace("_", "-") for name in ingress_groups(spec)]
    return _required({GROUP_LABEL: groups}) if groups else None


def _sunk_group(spec: ClusterSpec, name: str) -> Object:
    """Return a node group of SUNK, which names its NodeSet and its partition alike; `gres` has no `gpu:` before type and count."""
    group = _slurm_group(spec, name)
    partition = next((partition for partition in spec.slurm.partitions if name in partition.groups), None)
    settings = {"Default": "YES" if partition.default else "NO", "MaxTime": partition.max_time} if partition else {}
    settings |= _sharing(partition) if partition else {}
    own = {"name": partition.name if partition else group["name"], "partition": settings}
    return {**group, **own, "gres": group["gres"].removeprefix("gpu:"), "tolerations": [*group["tolerations"], lock_toleration()]}


def _sharing(partition: Partition) -> dict[str, str]:
    """Return the keys of a partition's QoS and of its sharing of processors, as far as the spec has them."""
    qos = {"QOS": partition.qos} if partition.qos else {}
    return qos | ({"OverSubscribe": partition.oversubscribe} if partition.oversubscribe else {})


# ---- slurm.conf ----------------------------------------------------------------------------------------------------------------


def _slurm_partitions(spec: ClusterSpec) -> list[Object]:
    written = [
        {
            "name": partition.name,
            "nodesets": [group.replace("_", "-") for group in partition.groups],
            "conf": {"Default": "YES" if partition.default else "NO", "MaxTime": partition.max_time} | _sharing(partition),
        }
        for partition in spec.slurm.partitions
    ]
    return written or [{"name": "all", "nodesets": ["ALL"], "conf": {"Default": "YES", "MaxTime": "UNLIMITED"}}]


SMALL_FLEET = 1024
"""Number of dynamic nodes that Slinky's own slurm.conf has room for (MaxNodeCount)."""


def _slurm_conf(spec: ClusterSpec) -> dict[str, str]:
    """Return the further keys of slurm.conf of Slinky's controller.

    Since 1.2 the operator writes only what Slurm needs to start. Jobs with GPUs, limits of their cgroups, and nodes that come back
    from a reboot need the keys here (SlinkyProject/slurm-operator, CHANGELOG-1.2: "Pruned default slurm.conf").
    """
    conf = {
        "GresTypes": "gpu",
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": "task/affinity,task/cgroup",
        "PrologFlags": "Contain",
        "ReturnToService": "2",
    }
    # records of replaced machines count too, until somebody deletes them
    room = len(_machines(spec)) * 5 // 4
    conf |= {"MaxNodeCount": str(room)} if room > SMALL_FLEET else {}
    conf |= {"AccountingStorageTRES": "gres/gpu"} if spec.slurm.accounting else {}
    return conf | _qos_conf(spec)


def _qos_conf(spec: ClusterSpec) -> dict[str, str]:
    """Return the keys of slurm.conf by which limits of a QoS hold, those of GPUs too; empty without a QoS."""
    return {"AccountingStorageEnforce": "limits,qos", "AccountingStorageTRES": "gres/gpu"} if spec.slurm.qos else {}


def _machines(spec: ClusterSpec) -> list[Machine]:
    """Return the machines that run Slurm."""
    chosen = set(slurm_groups(spec))
    return [machine for machine in spec.machines if machine.group in chosen]


def qos_record(qos: SlurmQos) -> str:
    """Return a QoS as sacctmgr takes it: name and settings; -1 takes a limit away."""
    gpus = f"gres/gpu={-1 if qos.gpus_per_user is None else qos.gpus_per_user}"
    jobs = -1 if qos.jobs_per_user is None else qos.jobs_per_user
    return f"{qos.name} Priority={qos.priority} MaxTRESPerUser={gpus} MaxJobsPerUser={jobs} MaxWall={qos.max_time or -1}"


def _sunk_conf(spec: ClusterSpec) -> Object:
    """Return the keys of SUNK's `slurmConfig`, without those that name ConfigMaps."""
    slurm, conf = spec.slurm, dict[str, Any](_qos_conf(spec))
    if slurm.topology == "tree":
        conf["TopologyPlugin"] = "topology/tree"
    if slurm.node:
        # the chart's 4096 MB a processor keeps nodes from registering, if they have less
        free = (slurm.node.memory_gib - slurm.node.reserved_memory_gib) * 1024
        conf["DefMemPerCPU"] = max(free // slurm.node.cpus, 1)
    scripts = {key: name for key, name, texts in script_maps(spec) if texts}
    conf |= {"slurmd": scripts} if scripts else {}
    return conf | ({"slurmCtld": {"etcConfigMap": ETC_CONFIG_MAP}} if slurm.config_files else {})


def script_maps(spec: ClusterSpec) -> tuple[tuple[str, str, Mapping[str, str]], ...]:
    """Return for prolog and epilog the key of SUNK's `slurmConfig.slurmd`, the name of the ConfigMap, and its scripts."""
    return (
        ("prologConfigMap", "slurm-prolog", with_mark("prolog", spec.slurm.prolog)),
        ("epilogConfigMap", "slurm-epilog", with_mark("epilog", spec.slurm.epilog)),
    )


def with_mark(kind: str, scripts: Mapping[str, str]) -> dict[str, str]:
    """Return the scripts of a prolog or epilog with a last one that leaves a file by which a job sees that they ran.

    Without scripts there is nothing to prove, and the result is empty. Files of the day before are removed.
    """
    if not scripts:
        return {}
    # Slinky projects the scripts of both into one folder, where equal names would be one file
    name = f"zz-bringup-{kind}.sh"
    lines = ("#!/bin/sh", f'mkdir -p {MARKS} && : >"{MARKS}/{kind}.$SLURM_JOB_ID"', f"find {MARKS} -type f -mmin +1440 -delete")
    return {**scripts, name: "".join(f"{line}\n" for line in lines)}


# ---- topology ------------------------------------------------------------------------------------------------------------------


def leaves(machines: Iterable[Machine]) -> dict[str, list[str]]:
    """Return leaf switch → its machines, both in the order of the fleet; machines without a leaf are left out."""
    members: dict[str, list[str]] = {}
    for machine in machines:
        if machine.leaf:
            members.setdefault(machine.leaf, []).append(machine.name)
    return members


def topology_file(spec: ClusterSpec) -> str:
    """Return topology.yaml with one switch above all leaf switches of Slurm's machines; empty if the spec asks for none."""
    if spec.slurm.topology == "none":
        return ""
    by_leaf = leaves(_machines(spec))
    lines = ["---", f"- topology: {TREE}", "  cluster_default: true", "  tree:", "    switches:"]
    lines += [f"      - switch: {ROOT}", f"        children: {','.join(by_leaf)}"]
    for leaf, names in by_leaf.items():
        lines += [f"      - switch: {leaf}", f"        nodes: {fold(list(map(slinky_name, names)))}"]
    return "".join(f"{line}\n" for line in lines)


# ---- home, tokens --------------------------------------------------------------------------------------------------------------


def _home_volumes(home: SlurmHome | None) -> Object:
    """Return volumes and mounts of the shared /home; both lists are empty without one."""
    if home is None:
        return {"volumes": [], "mounts": []}
    source: Object = {"persistentVolumeClaim": {"claimName": HOME_CLAIM}}
    if home.server:
        source = {"nfs": {"server": home.server, "path": home.path}}
    return {"volumes": [{"name": "shared-home", **source}], "mounts": [{"name": "shared-home", "mountPath": "/home"}]}


def _token(user: str, seconds: int) -> Object:
    """Return a Token of Slinky, whose operator writes the signed token into the Secret and renews it."""
    name = f"slurm-token-{user.strip('_').replace('_', '-')}"
    return {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "Token",
        "metadata": {"name": name},
        "spec": {
            "username": user,
            "jwtKeyRef": dict(JWT_SECRET),
            "secretRef": {"name": name, "key": "SLURM_JWT"},
            "lifetime": f"{seconds}s",
            "refresh": True,
        },
    }
