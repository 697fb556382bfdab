"""Say what a sync would restart, from two states of a tree: pods whose templates differ, and the jobs that depend on them.

Static: it compares what is written, not what runs. A chart that could not be rendered is judged by its values: the pods that a key
belongs to are known for SUNK's and Slinky's charts and for NVIDIA's operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workflows.gitops_check.application_objects import ChartUse
from workflows.gitops_check.delivery_tree import DeliveredObject, mapping
from workflows.gitops_check.gitops_findings import UncheckedPart

_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "NodeSet")
RUNNING = "running jobs on its nodes end when their pods are replaced, unless they are drained first"
SESSIONS = "no job; sessions of everyone who is logged in end"
SESSIONS_LATER = "no job; sessions end when a person deletes the pods (OnDelete)"
SCHEDULING = "no job; scheduling and submission pause until slurmctld is back"
ACCOUNTING = "no job; records of accounting wait in slurmctld until slurmdbd is back"
NONE = "no job"
GPU_DRIVER = "every job that holds a GPU: pods with GPUs are evicted from a node while its driver is replaced"
GPU_STACK = "running jobs go on; no new pod with a GPU starts on a node until its device plugin is back"
REMOVED = "jobs on the nodes that are removed end"


@dataclass(frozen=True, slots=True, order=True)
class Restart:
    """Pods that a sync replaces or removes: whose they are, why, and what happens to jobs.

    `ends_jobs` if some running job may end, `is_removal` if the pods do not come back.
    """

    application: str
    pods: str
    why: str
    jobs: str
    ends_jobs: bool
    is_removal: bool = False

    def __str__(self) -> str:
        return f"{self.application} {'removes' if self.is_removal else 'restarts'} {self.pods} ({self.why}); {self.jobs}"


def _sunk_login(use: ChartUse) -> tuple[str, str]:
    strategy = use.value("login", "updateStrategy")
    kind = strategy.get("type") if isinstance(strategy, Mapping) else strategy
    return "login pods", SESSIONS_LATER if kind == "OnDelete" else SESSIONS


_SUNK: Mapping[str, tuple[str, str]] = {
    "compute": ("slurmd pods of all NodeSets", RUNNING),
    "global": ("all pods of the chart, slurmd included", RUNNING),
    "munge": ("all pods of the chart, slurmd included, since munge is a sidecar of each", RUNNING),
    "login": ("login pods", SESSIONS),
    "controller": ("slurmctld", SCHEDULING),
    "slurmConfig": ("slurmctld", SCHEDULING),
    "clusterName": ("slurmctld and slurmdbd", SCHEDULING),
    "accounting": ("slurmdbd", ACCOUNTING),
    "moco": ("the accounting database", ACCOUNTING),
    "mysql": ("the accounting database", ACCOUNTING),
    "rest": ("slurmrestd", NONE),
    "syncer": ("the syncer", NONE),
    "scheduler": ("the pod scheduler", NONE),
}
_SLINKY: Mapping[str, tuple[str, str]] = {
    "nodesetDefaults": ("slurmd pods of all NodeSets", RUNNING),
    "nodesets": ("slurmd pods of all NodeSets", RUNNING),
    "loginsetDefaults": ("login pods", SESSIONS),
    "loginsets": ("login pods", SESSIONS),
    "controller": ("slurmctld", SCHEDULING),
    "configFiles": ("slurmctld", SCHEDULING),
    "clusterName": ("slurmctld", SCHEDULING),
    "partitions": ("slurmctld", SCHEDULING),
    "prologScripts": ("slurmctld", SCHEDULING),
    "epilogScripts": ("slurmctld", SCHEDULING),
    "accounting": ("slurmdbd", ACCOUNTING),
    "restapi": ("slurmrestd", NONE),
    "slurmKeyRef": ("all pods of the chart, slurmd included", RUNNING),
    "jwtKeyRef": ("all pods of the chart, slurmd included", RUNNING),
    "imagePullPolicy": ("all pods of the chart, slurmd included", RUNNING),
    "vendor": ("slurmd pods of all NodeSets", RUNNING),
}
_GPU: Mapping[str, tuple[str, str]] = {
    "driver": ("drivers of the GPU Operator", GPU_DRIVER),
    "toolkit": ("the container toolkit", GPU_STACK),
    "devicePlugin": ("device plugins", GPU_STACK),
    "mig": ("the MIG manager, which empties nodes to change their GPUs", GPU_DRIVER),
}
_PARTS: Mapping[str, Mapping[str, tuple[str, str]]] = {"sunk_slurm": _SUNK, "slurm": _SLINKY, "gpu_operator": _GPU}
"""Component → top-level key of its values → pods, and what their restart means for jobs."""
_WHOLE: Mapping[str, tuple[str, str]] = {
    "sunk_slurm": ("all pods of the chart, slurmd included", RUNNING),
    "slurm": ("all pods of the chart, slurmd included", RUNNING),
    "gpu_operator": ("the GPU Operator and its drivers", GPU_DRIVER),
    "network_operator": ("drivers and device plugins of the network", "jobs that use RDMA on a node whose driver is replaced"),
}
"""Component → pods and jobs if its version changes."""
_GROUPS = {"sunk_slurm": ("compute", "nodes"), "slurm": ("nodesets",)}


@dataclass(frozen=True, slots=True)
class TreeState:
    """One state of a tree for a comparison: objects from Git, charts, and the component of each by `id`."""

    manifests: tuple[DeliveredObject, ...]
    uses: tuple[ChartUse, ...]
    names: Mapping[int, str]


def restarts(before: TreeState, after: TreeState) -> list[Restart]:
    """Return what a sync from one state to the other would restart, in a fixed order."""
    return sorted({*_of_manifests(before.manifests, after.manifests), *_of_charts(before, after)})


# ---- pod templates --------------------------------------------------------------------------------------------------------------


def _of_manifests(before: Iterable[DeliveredObject], after: Iterable[DeliveredObject]) -> Iterator[Restart]:
    earlier = {_key(entry): entry for entry in before if entry.kind in _WORKLOADS}
    for manifest in after:
        previous = earlier.pop(_key(manifest), None)
        if previous is not None:
            yield from _changed(previous, manifest)
    for manifest in earlier.values():
        pods = f"{manifest.kind} {manifest.name}"
        effect = REMOVED if manifest.kind == "NodeSet" else _of_workload(manifest)
        yield Restart(manifest.path, pods, "the object is gone from Git", effect, _ends(effect), is_removal=True)


def _key(manifest: DeliveredObject) -> tuple[str, ...]:
    return manifest.group, manifest.kind, str(manifest.metadata.get("namespace") or ""), manifest.name


def _changed(before: DeliveredObject, after: DeliveredObject) -> Iterator[Restart]:
    if after.kind == "NodeSet":
        was, will = before.spec.get("replicas"), after.spec.get("replicas")
        if isinstance(was, int) and isinstance(will, int) and will < was:
            yield Restart(
                after.path, f"{was - will} of {was} pods of NodeSet {after.name}", f"replicas {was} → {will}", REMOVED, True
            )
    differing = list(_differing(_template(before), _template(after), "spec.template"))
    if differing:
        why = differing[0] if len(differing) == 1 else f"{differing[0]} and {len(differing) - 1} more"
        effect = _of_workload(after)
        yield Restart(after.path, f"{after.kind} {after.name}", why, effect, _ends(effect))


def _template(manifest: DeliveredObject) -> Any:
    """Return all that makes the pods: the template, or for Slinky's NodeSet the spec apart from what only counts pods."""
    if manifest.kind == "NodeSet" and "template" not in manifest.spec:
        return {
            key: value
            for key, value in manifest.spec.items()
            if key not in ("replicas", "updateStrategy", "partition", "scalingMode")
        }
    return manifest.spec.get("template")


def _of_workload(manifest: DeliveredObject) -> str:
    name = f"{manifest.name} {mapping(manifest.metadata.get('labels')).get('app.kubernetes.io/component', '')}".lower()
    if manifest.kind == "NodeSet" or "slurmd" in name.split():
        return RUNNING
    if "login" in name:
        kind = mapping(manifest.spec.get("updateStrategy")).get("type")
        return SESSIONS_LATER if kind == "OnDelete" else SESSIONS
    if "slurm" in name and ("controller" in name or "slurmctld" in name):
        return SCHEDULING
    if "accounting" in name or "slurmdbd" in name:
        return ACCOUNTING
    if "driver" in name and "nvidia" in name:
        return GPU_DRIVER
    return GPU_STACK if "device-plugin" in name else NONE


def _ends(effect: str) -> bool:
    return effect in (RUNNING, GPU_DRIVER, REMOVED) or "RDMA" in effect


def _differing(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            yield from _differing(before.get(key), after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (was, will) in enumerate(zip(before, after, strict=True)):
            yield from _differing(was, will, f"{path}[{number}]")
    elif before != after:
        yield path


# ---- values of charts -----------------------------------------------------------------------------------------------------------


def _of_charts(before: TreeState, after: TreeState) -> Iterator[Restart]:
    earlier = {_use_key(use): use for use in before.uses if id(use) in before.names}
    for use in after.uses:
        component = after.names.get(id(use), "")
        previous = earlier.get(_use_key(use))
        is_whole = previous is not None and not previous.missing and not use.missing
        if previous is None or not is_whole or (component not in _PARTS and component not in _WHOLE):
            continue
        if previous.version != use.version and component in _WHOLE:
            pods, effect = _WHOLE[component]
            yield Restart(_owner(use), pods, f"chart {use.chart} {previous.version} → {use.version}", effect, _ends(effect))
        for key in dict.fromkeys((*previous.values, *use.values)):
            yield from _of_key(component, previous, use, key)


def _use_key(use: ChartUse) -> tuple[str, str, str]:
    return use.chart, use.namespace, use.application.name if use.application else use.place[0]


def _owner(use: ChartUse) -> str:
    return use.application.name if use.application else use.place[0]


def _of_key(component: str, before: ChartUse, after: ChartUse, key: str) -> Iterator[Restart]:
    was, will = before.values.get(key), after.values.get(key)
    groups = _GROUPS.get(component, ())
    if was == will or key not in _PARTS.get(component, {}):
        return
    if groups and groups[0] == key:
        yield from _of_groups(before, after, groups)
        was, will = _without(was, groups[1:]), _without(will, groups[1:])
        if was == will or len(groups) == 1:
            return
    differing = list(_differing(was, will, key))
    pods, effect = _PARTS[component][key]
    if component == "sunk_slurm" and key == "login":
        pods, effect = _sunk_login(after)
    why = differing[0] if len(differing) == 1 else f"{differing[0]} and {len(differing) - 1} more"
    # how pods are replaced is no part of a pod
    if all(path.endswith((".maxUnavailable", ".updateStrategy", ".replicas")) for path in differing):
        return
    yield Restart(_owner(after), pods, why, effect, _ends(effect))


def _without(value: Any, path: tuple[str, ...]) -> Any:
    return {key: inner for key, inner in value.items() if key not in path} if isinstance(value, Mapping) and path else value


def _of_groups(before: ChartUse, after: ChartUse, path: tuple[str, ...]) -> Iterator[Restart]:
    was, will = mapping(before.value(*path)), mapping(after.value(*path))
    for name in dict.fromkeys((*was, *will)):
        old, new = mapping(was.get(name)), mapping(will.get(name))
        if old == new or not old:
            continue
        if not new:
            yield Restart(_owner(after), f"NodeSet {name}", "the group is gone from the values", REMOVED, True, is_removal=True)
            continue
        count, wanted = old.get("replicas"), new.get("replicas")
        if isinstance(count, int) and isinstance(wanted, int) and wanted < count:
            why = f"replicas {count} → {wanted}"
            yield Restart(_owner(after), f"{count - wanted} of {count} pods of NodeSet {name}", why, REMOVED, True, is_removal=True)
        where = ".".join((*path, name))
        differing = [key for key in _differing(old, new, where) if not key.endswith((".replicas", ".updateStrategy"))]
        # partitions are lines of slurm.conf
        if differing and all(f"{where}.partition" in key for key in differing):
            yield Restart(_owner(after), "slurmctld", differing[0], SCHEDULING, False)
        elif differing:
            why = differing[0] if len(differing) == 1 else f"{differing[0]} and {len(differing) - 1} more"
            share = after.value("compute", "maxUnavailable")
            pods = f"slurmd pods of NodeSet {name}" + (f", {share} at a time" if share else "")
            yield Restart(_owner(after), pods, why, RUNNING, True)


def unjudged(before: TreeState, after: TreeState) -> Iterator[UncheckedPart]:
    """Yield an unchecked part for each changed chart of which nothing says which pods its values are for."""
    earlier = {_use_key(use): use for use in before.uses}
    for use in after.uses:
        previous = earlier.get(_use_key(use))
        component = after.names.get(id(use), "")
        if previous is not None and (previous.missing or use.missing):
            words = f"values of chart {use.chart} of {_owner(use)} are missing: what a sync restarts of it is not known"
            yield UncheckedPart(use.place[0], words)
            continue
        is_judged = component in _PARTS or component in _WHOLE or use.local is not None
        if previous is not None and not is_judged and (previous.version, previous.values) != (use.version, use.values):
            yield UncheckedPart(
                use.place[0], f"chart {use.chart} of {_owner(use)} changes: what it restarts is not known without rendering"
            )
