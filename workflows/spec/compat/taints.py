"""Rules about the taints and labels of host groups: P36 (who tolerates the taints) and P42 (whose they are)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from steps.contract.node_taints import SUNK_LOCK, from_text, tolerates
from workflows.spec.cluster_spec import GROUP_LABEL, ClusterSpec, gpu_groups, keeping_taints, sharing_label
from workflows.spec.compat.rule_table import Platform, ReleaseFacts, RuleFinding, rule
from workflows.spec.gpu_pools import OPERAND_LABELS, pool_of, runs_operand

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_ON_CONTROL_PLANE = frozenset({"gpu_operator", "network_operator"})
"""Charts whose controllers tolerate the usual taints of servers by default (values.yaml of both charts)."""
_DAEMONS: Mapping[str, tuple[str, ...]] = {
    "gpu_operator": ("daemonsets.tolerations", "node-feature-discovery.worker.tolerations"),
    "dra_driver": ("kubeletPlugin.tolerations",),
}
"""Release id → Helm values with the tolerations of its DaemonSets on GPU nodes."""
_NO_PODS = frozenset({"prometheus_operator_crds", "slurm_operator_crds"})


@rule("P36", "error", source="https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/", later=())
def taints_are_tolerated(platform: Platform) -> Iterator[RuleFinding]:
    """Controllers of the planned charts have machines whose taints they tolerate, and DaemonSets tolerate those of GPU machines."""
    yield from _controllers(platform)
    yield from _daemons(platform)


def _controllers(platform: Platform) -> Iterator[RuleFinding]:
    spec = platform.spec
    taints = {name: keeping_taints(spec, [name]) for name in spec.hosts}
    if not all(taints.values()):
        return
    nowhere = [
        release.id
        for release in platform.releases.values()
        if release.id not in _NO_PODS and not any(_accepts(release, of_group) for of_group in taints.values())
    ]
    if nowhere:
        listed = ", ".join(f"{name} ({', '.join(of_group)})" for name, of_group in taints.items())
        problem = f"every host group has a taint, so pods of these charts run nowhere: {', '.join(nowhere)}; groups: {listed}"
        yield RuleFinding("hosts", problem, "leave the taints of one group out, as a rule of the servers")


def _accepts(release: ReleaseFacts, taints: tuple[str, ...]) -> bool:
    """Return True if controllers of a release run on machines with these taints: by default, or by tolerations in its values."""
    own = list(_tolerations(release.values))
    keys = CONTROL_PLANE if release.id in _ON_CONTROL_PLANE else ()
    return all(taint["key"] in keys or tolerates(own, taint) for taint in map(from_text, taints))


def _daemons(platform: Platform) -> Iterator[RuleFinding]:
    for text in keeping_taints(platform.spec, gpu_groups(platform.spec)):
        taint = from_text(text)
        for name, paths in _DAEMONS.items():
            release = platform.releases.get(name)
            for path in paths if release is not None else ():
                tolerations = release.value(path) if release is not None else None
                if isinstance(tolerations, list) and not tolerates(tolerations, taint):
                    problem = f"DaemonSets of {name} do not tolerate {text} of the GPU machines, so they never run there"
                    fix = f"add {{key: {taint['key']}, operator: Exists}}, or leave the key out: it then has the taints of the spec"
                    yield RuleFinding(f"overrides.{name}.values.{path}", problem, fix)


def _tolerations(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key, value in values.items():
        if key == "tolerations" and isinstance(value, list):
            yield from (entry for entry in value if isinstance(entry, Mapping))
        elif isinstance(value, Mapping) and key not in ("daemonsets", "worker", "kubeletPlugin", "nodes"):
            yield from _tolerations(value)


_CONDITIONS = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        *("not-ready", "unreachable", "unschedulable", "network-unavailable"),
        *("memory-pressure", "disk-pressure", "pid-pressure"),
    )
)
"""Taints that the node controller sets and takes away by the conditions of a node; others of this prefix are a site's own.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
"""
_OF_KUBELET = re.compile(r"(beta\.)?kubernetes\.io/(arch|os)|kubernetes\.io/hostname")
_OF_DISCOVERY = re.compile(
    r"nvidia\.com/(gpu\.(product|count|memory|replicas|family|machine|mode|clique|compute\..*|sharing-strategy)"
    r"|mig\.(capable|strategy|config\.state)|mig-.*|mps\.capable|cuda\..*|gfd\..*)"
)
"""Labels that GPU Feature Discovery and the device plugin write (https://github.com/NVIDIA/k8s-device-plugin)."""
_DEPLOY = "nvidia.com/gpu.deploy."
"""Start of the labels that switch the operator's parts off on a node."""
_SHARING_DEFAULTS = {
    "nvidia.com/mig.config": "all-disabled",
    "nvidia.com/device-plugin.config": "whole",
    "nvidia.com/dra-kubelet-plugin": "false",
}
"""Labels by which stage sharing chooses how a node shares its GPUs → what they say where it chooses nothing."""


@rule("P42", "error", source="https://kubernetes.io/docs/reference/labels-annotations-taints/")
def labels_and_taints_are_the_sites(platform: Platform) -> Iterator[RuleFinding]:
    """Labels and taints of machines are the site's own: none that the platform sets itself, and each taint once by its effect."""
    spec = platform.spec
    for name, group in spec.hosts.items():
        yield from _own_taints(f"hosts.{name}.taints", group.taints)
        yield from _own_labels(platform, name, f"hosts.{name}.labels", group.labels)
        for host, override in group.overrides.items():
            yield from _own_labels(platform, name, f"hosts.{name}.overrides.{host}.labels", override.labels)


def _own_taints(path: str, written: tuple[str, ...]) -> Iterator[RuleFinding]:
    taints = list(map(from_text, written))
    pairs = [(taint["key"], taint["effect"]) for taint in taints]
    for key, effect in sorted({pair for pair in pairs if pairs.count(pair) > 1}):
        problem = f"a node has at most one taint {key} with effect {effect}, and the API server refuses one with several"
        yield RuleFinding(path, problem, "keep one of them")
    for key in dict.fromkeys(key for key, _ in pairs):
        if key in _CONDITIONS:
            problem = f"Kubernetes itself sets {key} by a condition of the node, and takes it away again"
            yield RuleFinding(path, problem, "use a key of your own, as in site/reserved=yes:NoSchedule")
        elif key == SUNK_LOCK:
            yield RuleFinding(path, f"SUNK itself sets {key} on nodes that run its jobs", "remove it")


def _own_labels(platform: Platform, group: str, path: str, labels: Mapping[str, str]) -> Iterator[RuleFinding]:
    for key, value in labels.items():
        if reason := _claimed(platform.spec, group, key, value) or _claimed_by_operator(platform, group, key, value):
            yield RuleFinding(f"{path}.{key}", reason, "remove it")


def is_set_by_cluster(key: str) -> bool:
    """Return True for labels that every node has without the spec: its group, and what the kubelet sees of its machine."""
    return key == GROUP_LABEL or _OF_KUBELET.fullmatch(key) is not None


def _claimed(spec: ClusterSpec, group: str, key: str, value: str) -> str:
    """Return who sets a label and why a site must not; empty for a label of the site, or one of the GPU Operator."""
    if key == GROUP_LABEL:
        return f"each node gets {key} with the name of its group, so this value would be dropped"
    if _OF_KUBELET.fullmatch(key) and not (key.endswith("/os") and value == "linux"):
        return f"the kubelet sets {key} to what the machine is, and another value misleads schedulers and volumes"
    if not spec.hosts[group].gpu or key not in _SHARING_DEFAULTS or "sharing" not in spec.enabled_stages():
        return ""
    pool = pool_of(spec, group)
    planned = sharing_label(pool.spec) if pool else None
    wanted = planned[1] if planned and planned[0] == key else _SHARING_DEFAULTS[key]
    return "" if value == wanted else f"stage sharing sets {key} to what the section sharing says ({wanted})"


def _claimed_by_operator(platform: Platform, group: str, key: str, value: str) -> str:
    """Return why a site must not set a label of the GPU Operator; empty for other labels, and where the plan runs no operator."""
    spec = platform.spec
    operator = platform.releases.get("gpu_operator")
    if operator is None or not spec.hosts[group].gpu or "gpu_operator" not in spec.enabled_stages():
        return ""
    if _OF_DISCOVERY.fullmatch(key):
        return f"the GPU Operator writes {key} from what it finds, over this value"
    if key.startswith(_DEPLOY) and value != "true":
        parts = (part for part, names in OPERAND_LABELS.items() if key.removeprefix(_DEPLOY) in names)
        if all(runs_operand(spec, operator.values, part) for part in parts):
            return f"{key} switches off a part of the GPU Operator that checks expect on every GPU machine"
    if key == "nvidia.com/gpu.workload.config" and value != "container":
        return f"{key} decides whether containers or virtual machines get the GPUs"
    return ""
