"""Rules about Slurm on Kubernetes: SUNK's and Slinky's values, the lock taint, operators and capabilities around them.

Sources: https://docs.coreweave.com/products/sunk (Manage Deployments with CI and GitOps), coreweave/sunk-anywhere, and
SlinkyProject/slurm-operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from steps.contract.node_taints import SUNK_LOCK
from workflows.catalog.model import Component
from workflows.gitops_check.application_objects import ChartUse
from workflows.gitops_check.delivery_tree import DeliveredObject, DeliveryTree, mapping, sequence
from workflows.gitops_check.gitops_findings import GitopsFinding, UncheckedPart, finding
from workflows.gitops_check.manifest_rules import pod_spec
from workflows.spec.errors import Severity

_GPU = "nvidia.com/gpu"
_GRES = re.compile(r"[a-z0-9][a-z0-9_.-]*:[1-9][0-9]{0,2}")
_KNOWN_MAJOR = 7
_TOLERATING = {
    "sunk": ("operator",),
    "sunk_slurm": ("controller", "accounting", "login", "syncer", "scheduler", "rest", "secretJob", "cleanupCompleting"),
}
"""Component → parts whose pods must tolerate the lock taint."""
_CAN_BE_OFF = frozenset({"syncer", "scheduler", "rest"})
NODE_SET_GROUPS = {"sunk_slurm": "sunk.coreweave.com", "slurm": "slinky.slurm.net"}
"""Component → API group of the NodeSets that its chart makes."""


def slurm_findings(uses: Iterable[ChartUse], names: Mapping[int, str]) -> Iterator[GitopsFinding | UncheckedPart]:
    """Yield findings about the values of SUNK's and Slinky's charts."""
    for use in uses:
        component = names.get(id(use), "")
        if component in _TOLERATING:
            yield from _version(use)
            if use.missing:
                words = f"{', '.join(use.missing)} of chart {use.chart} is not in this tree: what it sets is not known"
                yield UncheckedPart(use.place[0], words)
                continue
            yield from _tolerations(use, _TOLERATING[component])
        if component == "sunk_slurm":
            yield from _login(use)
            yield from _node_groups(use)
            yield from _database(use)


def _version(use: ChartUse) -> Iterator[GitopsFinding]:
    major = re.match(r"v?(\d{1,4})\.", use.version)
    if major and int(major[1]) > _KNOWN_MAJOR:
        words = f"SUNK {major[1]} is another architecture (one SlurmCluster), and its values are not public"
        fix = "pin the newest 7.x; a plain upgrade from 7 deletes the accounting database"
        yield finding("chart-version-unknown", use.place, words, fix, value=use.version)


def _tolerates(tolerations: Any) -> bool:
    """Return True if tolerations include the lock taint, or every taint."""
    for entry in map(mapping, sequence(tolerations)):
        fits_effect = entry.get("effect") in (None, "", "NoExecute")
        is_any = entry.get("operator") == "Exists" and entry.get("key") in (None, "")
        if fits_effect and (is_any or entry.get("key") == SUNK_LOCK) and "tolerationSeconds" not in entry:
            return True
    return False


def _tolerations(use: ChartUse, parts: Iterable[str]) -> Iterator[GitopsFinding]:
    for part in parts:
        is_off = part in _CAN_BE_OFF and use.value(part, "enabled") is False
        if not is_off and not _tolerates(use.value(part, "tolerations")):
            words = f"{part} of chart {use.chart} does not tolerate {SUNK_LOCK}: SUNK evicts it from every node that runs a job"
            fix = f"add {part}.tolerations: [{{key: {SUNK_LOCK}, operator: Exists, effect: NoExecute}}]"
            yield finding("lock-toleration-missing", use.where(part, "tolerations"), words, fix)


def _login(use: ChartUse) -> Iterator[GitopsFinding]:
    strategy = use.value("login", "updateStrategy")
    kind = strategy.get("type") if isinstance(strategy, Mapping) else strategy
    if kind != "OnDelete":
        words = "a sync that changes the login pods ends the sessions of everyone who is logged in"
        fix = "set login.updateStrategy: OnDelete, and delete a login pod once nobody is logged in"
        yield finding("login-update-kills-sessions", use.where("login", "updateStrategy"), words, fix, value=kind)
    service = mapping(use.value("login", "service"))
    if service.get("type", "ClusterIP") == "ClusterIP" and service.get("externalTrafficPolicy", "") not in ("", None):
        words = "externalTrafficPolicy belongs to LoadBalancer and NodePort, and the API server refuses the Service"
        fix = 'write externalTrafficPolicy: "", since the chart\'s default is Local'
        where = use.where("login", "service", "externalTrafficPolicy")
        yield finding("login-service-policy", where, words, fix, value=service["externalTrafficPolicy"])


def _node_groups(use: ChartUse) -> Iterator[GitopsFinding]:
    groups = mapping(use.value("compute", "nodes"))
    # entries that others name as definitions are layers of node groups, not groups
    layers = {str(name) for group in groups.values() for name in sequence(mapping(group).get("definitions"))}
    for name, group in groups.items():
        if not isinstance(group, Mapping):
            continue
        place = ("compute", "nodes", name)
        gres = group.get("gresGpu")
        if gres not in (None, "") and not _GRES.fullmatch(str(gres)):
            words = f"gresGpu of {name} is not TYPE:COUNT, and its nodes stay INVALID_REG"
            yield finding("gres-form", use.where(*place, "gresGpu"), words, "write it like h200:8", value=gres)
        elif gres:
            yield from _requested(use, name, group, str(gres))
        if name not in layers and group.get("enabled") is not True:
            words = f"node group {name} is off: groups are not enabled by default, and nothing reports it"
            yield finding("node-group-off", use.where(*place, "enabled"), words, "set enabled: true, or remove the group")


def _requested(use: ChartUse, name: str, group: Mapping[str, Any], gres: str) -> Iterator[GitopsFinding]:
    resources, count = mapping(group.get("resources")), gres.rpartition(":")[2]
    amounts = {key: str(mapping(resources.get(key)).get(_GPU, "none")) for key in ("requests", "limits")}
    if set(amounts.values()) != {count}:
        words = (
            f"node group {name} has {count} GPUs in Slurm, and {amounts['requests']} in requests and {amounts['limits']} in limits"
        )
        where = use.where("compute", "nodes", name, "resources")
        yield finding("gpu-not-requested", where, words, f"write {_GPU}: {count} in both", value=gres)


def _database(use: ChartUse) -> Iterator[GitopsFinding]:
    database = mapping(use.value("mysql"))
    if database.get("enabled") is True or "primary" in database:
        words = "SUNK 7 keeps accounting in MOCO; the MySQL subchart is for migrations alone"
        fix = "set mysql.enabled: false and moco.enabled: true, with the operator MOCO as a release of its own"
        yield finding("obsolete-database", use.where("mysql"), words, fix)


# ---- objects of clusters with SUNK ----------------------------------------------------------------------------------------------


def lock_findings(manifests: Iterable[DeliveredObject]) -> Iterator[GitopsFinding]:
    """Yield a finding for each workload of a tree with SUNK that the lock taint would evict."""
    for manifest in manifests:
        if manifest.kind not in ("DaemonSet", "Deployment"):
            continue
        path, spec = pod_spec(manifest)
        if path and not _tolerates(spec.get("tolerations")):
            words = f"{manifest.kind} {manifest.name} does not tolerate {SUNK_LOCK}, which evicts it from nodes of Slurm"
            fix = "add the toleration (operator Exists, effect NoExecute), unless these pods never run on nodes of Slurm"
            severity: Severity | None = None if manifest.kind == "DaemonSet" else "warning"
            yield finding("lock-toleration-missing", manifest.where(*path), words, fix, severity=severity)


def node_set_groups(tree: DeliveryTree, uses: Iterable[ChartUse], names: Mapping[int, str]) -> dict[str, tuple[str, int]]:
    """Return each API group whose NodeSets an Application delivers, with the place that shows it."""
    groups = {entry.group: entry.where("kind") for entry in tree.all_manifests() if entry.kind == "NodeSet"}
    for use in uses:
        group = NODE_SET_GROUPS.get(names.get(id(use), ""))
        if group and use.application is not None:
            groups.setdefault(group, use.application.manifest.where("kind"))
    return groups


# ---- what charts need and provide -----------------------------------------------------------------------------------------------

_OPERATORS = frozenset({"slurm_operator", "slurm_operator_crds", "sunk", "moco", "cert_manager"})
"""Components without which objects of a chart stay unanswered. Others that a component needs may be a part of the cluster."""


def need_findings(
    uses: Iterable[ChartUse], names: Mapping[int, str], components: Mapping[str, Component]
) -> Iterator[GitopsFinding]:
    """Yield findings about operators that no Application installs, and capabilities that two charts provide."""
    listed = [use for use in uses if id(use) in names and use.application is not None]
    present = {names[id(use)] for use in listed}
    for use in listed:
        for needed in components[names[id(use)]].needs:
            if needed in _OPERATORS and needed not in present and not _is_inside(use, needed):
                chart = components[needed].chart.rpartition("/")[2]
                words = f"chart {use.chart} needs {chart}, which no Application of this tree installs"
                yield finding("operator-missing", use.place, words, f"add an Application of {chart}, or see to it elsewhere")
    providers: dict[tuple[str, str], ChartUse] = {}
    for use in listed:
        for provision in components[names[id(use)]].provides:
            path = provision.where.split(".") if provision.where else []
            value = use.value(*path) if path else True
            is_on = provision.default if value is None else value is True
            cluster = use.application.cluster if use.application else ""
            first = providers.setdefault((cluster, provision.capability), use) if is_on else use
            if first is not use:
                thing = provision.capability.replace("_", " ").replace("nfd", "Node Feature Discovery")
                words = f"charts {first.chart} and {use.chart} both bring a {thing}, and the two fight over the same nodes"
                fix = f"set {provision.where}: false for one of them"
                yield finding("capability-twice", use.where(*path), words, fix)


def _is_inside(use: ChartUse, needed: str) -> bool:
    """Return True if the chart is told not to use an operator, or brings it."""
    return needed == "moco" and use.value("moco", "enabled") is False
