"""Readings of dumps of Kubernetes objects: Argo CD, Flux, Jobs, pods, Kueue, Volcano, NVIDIA's policies, ResourceSlices, labels.

A dump may be a part of an object: then its shape tells the kind.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.readings import object_documents
from steps.readings.captured_text import CapturedText
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ReadingVerdict, ToolReading, failed, passed, undecided
from steps.stages.shared import causes

OBJECT = "kubernetes-object"
_HEALTH, _RUNTIME = FailureClass.HEALTH, FailureClass.RUNTIME
Kube = dict[str, Any]
_LINES = re.compile(r"^[ \t-]*(?:message|reason): ['\"]?(\S[^\n]*?)['\"]?[ \t]*$", re.MULTILINE)
_SHOWN_REASONS = 4
MOST_FIGURES = 100


def is_objects(documents: list[Any]) -> bool:
    """Return True for dumps of Kubernetes objects, of parts of them, or of a node's labels."""
    objects = object_documents.items(documents)
    return bool(objects) and all(_rule(item) is not None or "kind" in item for item in objects)


def read(captured: CapturedText, documents: list[Any], site: SiteValues) -> ToolReading:
    """Return the reading of all objects in a text: the worst of them."""
    objects = object_documents.items(documents)
    slices = [item for item in objects if item.get("kind") == "ResourceSlice"]
    if slices:
        is_list = all(isinstance(document, dict) and str(document.get("kind")).endswith("List") for document in documents)
        return _of_slices(slices, site, is_whole=is_list)
    readings = [_of(item, captured, site) for item in objects]
    order = [ReadingVerdict.FAIL, ReadingVerdict.INCONCLUSIVE, ReadingVerdict.PASS]
    worst = min(readings, key=lambda reading: order.index(reading.verdict))
    if len(objects) == 1:
        return worst
    return ToolReading(
        tool=worst.tool,
        verdict=worst.verdict,
        failure_class=worst.failure_class,
        cause=worst.cause,
        detail=worst.detail,
        next_step=worst.next_step,
        figures={**worst.figures, "objects": len(objects)},
    )


def _of(item: Kube, captured: CapturedText, site: SiteValues) -> ToolReading:
    rule = _rule(item)
    if rule is None:
        return undecided(OBJECT, f"no rule judges kind {str(item.get('kind'))[:60]}", {"kind": str(item.get("kind"))[:60]})
    reading = rule(item, captured, site)
    words = _passing(item) if reading.is_pass else ""
    return (
        undecided(OBJECT, words, reading.figures, next_step="dump it again when the controller has caught up") if words else reading
    )


def _passing(item: Kube) -> str:
    """Return why the status of an object does not hold for long; empty if it may."""
    metadata, status = _map(item.get("metadata")), _map(item.get("status"))
    if metadata.get("deletionTimestamp"):
        return f"{str(item.get('kind'))[:60]} {_text(metadata, 'name')} is being deleted"
    if "observedGeneration" in status and _number(status, "observedGeneration") < _number(metadata, "generation"):
        return f"the status of {str(item.get('kind'))[:60]} {_text(metadata, 'name')} is of an older spec"
    return ""


def _rule(item: Kube) -> Callable[[Kube, CapturedText, SiteValues], ToolReading] | None:
    """Return the rule for an object, by its kind, or by its shape if it is a part."""
    group, kind = str(item.get("apiVersion", "")).partition("/")[0], item.get("kind")
    by_kind = {
        "Application": _of_application,
        "Job": _of_job if group in ("batch", "") else None,
        "Pod": _of_pod,
        "HelmRelease": _of_helm_release,
        "Workload": _of_workload,
        "PodGroup": _of_pod_group,
        "NicClusterPolicy": _of_policy,
        "ClusterPolicy": _of_policy,
        "Node": _of_node,
        "DaemonSet": _of_workload_status,
        "Deployment": _of_workload_status,
        "StatefulSet": _of_workload_status,
    }
    if isinstance(kind, str) and kind in by_kind:
        return by_kind[kind]
    status = _map(item.get("status"))
    types = {_text(condition, "type") for condition in _conditions(item)}
    if "operationState" in status or ("health" in status and "sync" in status):
        return _of_application
    if "appliedStates" in status:
        return _of_policy
    if types & {"QuotaReserved", "Admitted"}:
        return _of_workload
    if kind is None and "phase" in status and ("running" in status or "Unschedulable" in types):
        return _of_pod_group
    return _of_labels if any(name.startswith("nvidia.com/") for name in item) else None


# ---- Argo CD and Flux ----------------------------------------------------------------------------------------------------------

_NO_PATH = re.compile(r"(?P<path>[\w./-]+): app path does not exist")


def _of_application(item: Kube, _: CapturedText, __: SiteValues) -> ToolReading:
    status = _map(item.get("status"))
    operation = _map(status.get("operationState"))
    health, sync = _text(status.get("health"), "status"), _text(status.get("sync"), "status")
    errors = [entry for entry in _conditions(item) if re.search(r"Error$|^Excluded|^Shared|^Repeated", _text(entry, "type"))]
    figures: dict[str, Any]
    if "kind" in item:
        figures = {"kind": item["kind"], "health": [health] if health else [], "sync": [sync] if sync else []}
    else:
        figures = {"health": health, "sync": sync}
    optional = {"phase": _text(operation, "phase"), "condition": _text(errors[0], "type") if errors else ""}
    figures |= {name: value for name, value in optional.items() if value}
    texts = [(_text(entry, "type"), _text(entry, "message")) for entry in errors]
    if figures.get("phase") in ("Failed", "Error"):
        texts.append(("operation", _text(operation, "message") or "operation failed"))
    if texts and (cause := causes.classify(causes.ARGO_CD, texts)) is not None:
        return failed(OBJECT, cause.failure_class, _argo_cause(cause.text), figures, next_step=cause.next_step)
    if texts:
        return failed(OBJECT, FailureClass.COMPARISON, f"{texts[0][0]}: {texts[0][1][:200]}", figures)
    if health in ("Degraded", "Missing"):
        return failed(OBJECT, _HEALTH, f"application health {health}", figures, next_step="see which of its objects is not healthy")
    if health == "Healthy" and sync in ("Synced", "") and figures.get("phase", "Succeeded") == "Succeeded":
        return passed(OBJECT, figures, f"application {health}{f', {sync}' if sync else ''}")
    return undecided(OBJECT, f"application health {health or 'unknown'}, sync {sync or 'unknown'}", figures)


def _argo_cause(text: str) -> str:
    match = _NO_PATH.search(text)
    return f"app path {match['path']} does not exist" if match else text


def _of_helm_release(item: Kube, captured: CapturedText, _: SiteValues) -> ToolReading:
    conditions = {_text(entry, "type"): entry for entry in _conditions(item)}
    figures: dict[str, Any] = {"reasons": _LINES.findall(captured.text)[:_SHOWN_REASONS]}
    if _is(conditions, "Ready", "False"):
        messages = [
            (_text(entry, "type"), _text(entry, "message")) for entry in conditions.values() if entry.get("status") == "False"
        ]
        messages.sort(key=lambda pair: pair[0] != "Released")
        cause = causes.classify(causes.HELM, messages)
        failure_class = cause.failure_class if cause else FailureClass.APPLY
        is_rolled_back = any(_text(entry, "reason") == "RollbackSucceeded" for entry in conditions.values())
        words = _denied(messages) or (cause.text if cause else messages[0][1] or _text(conditions["Ready"], "reason"))
        return failed(OBJECT, failure_class, f"{words}{', rolled back' if is_rolled_back else ''}", figures)
    if _is(conditions, "Ready", "True") and _is(conditions, "Released", "True"):
        return passed(OBJECT, figures, _text(conditions["Ready"], "message") or "release is ready")
    return undecided(OBJECT, "the release does not tell that it is ready and released", figures)


def _denied(messages: list[tuple[str, str]]) -> str:
    for _, message in messages:
        text = " ".join(message.split())
        if match := re.search(r"Helm (\w+) failed .*?admission webhook \"([\w.-]{1,100})\" denied the request", text):
            return f"{match[1]} denied by admission webhook {match[2]}"
    return ""


# ---- workloads -----------------------------------------------------------------------------------------------------------------


def _of_job(item: Kube, captured: CapturedText, _: SiteValues) -> ToolReading:
    conditions, status = {_text(entry, "type"): entry for entry in _conditions(item)}, _map(item.get("status"))
    figures: dict[str, Any] = {"kind": "Job", "health": [], "sync": [], "reasons": _LINES.findall(captured.text)[:_SHOWN_REASONS]}
    if _is(conditions, "Failed", "True"):
        entry = conditions["Failed"]
        return failed(OBJECT, _RUNTIME, f"Job Failed: {_text(entry, 'reason')}, {_text(entry, 'message')}", figures)
    wanted = _map(item.get("spec")).get("completions", 1)
    if _is(conditions, "Complete", "True") and _number(status, "succeeded") >= (wanted if isinstance(wanted, int) else 1):
        return passed(OBJECT, figures, "Job Complete")
    return undecided(OBJECT, "the Job is neither complete nor failed, or its dump is cut", figures)


def _of_pod(item: Kube, _: CapturedText, __: SiteValues) -> ToolReading:
    status = _map(item.get("status"))
    phase = _text(status, "phase")
    figures: dict[str, Any] = {"kind": "Pod", "health": [], "sync": [], "phase": phase}
    containers = [*_maps(status.get("initContainerStatuses")), *_maps(status.get("containerStatuses"))]
    for container in containers:
        waiting = _map(_map(container.get("state")).get("waiting"))
        reason = _text(waiting, "reason")
        if reason in causes.RUNTIME_REASONS:
            what = _text(container, "image") if "Image" in reason else f"container {_text(container, 'name')}"
            return failed(OBJECT, _RUNTIME, f"{reason}: {what}", figures, next_step=_text(waiting, "message")[:200])
    conditions = {_text(entry, "type"): entry for entry in _conditions(item)}
    if phase == "Failed":
        return failed(
            OBJECT, _RUNTIME, f"pod Failed: {_text(status, 'reason') or _text(status, 'message') or 'a container'}", figures
        )
    if phase == "Pending" and _is(conditions, "PodScheduled", "False"):
        return failed(OBJECT, _RUNTIME, f"unschedulable: {_text(conditions['PodScheduled'], 'message')[:200]}", figures)
    if phase == "Running" and _is(conditions, "Ready", "False"):
        names = [_text(container, "name") for container in containers if container.get("ready") is False]
        return failed(OBJECT, _HEALTH, f"pod running, container {', '.join(names) or 'unknown'} not ready", figures)
    if phase == "Succeeded" or (phase == "Running" and _is(conditions, "Ready", "True")):
        return passed(OBJECT, figures, f"pod {phase}")
    return undecided(OBJECT, f"pod {phase or 'without a phase'}", figures)


def _of_workload_status(item: Kube, _: CapturedText, __: SiteValues) -> ToolReading:
    """Return the reading of a DaemonSet, Deployment or StatefulSet: all pods are ready, of the generation that was asked for."""
    status, spec, metadata = _map(item.get("status")), _map(item.get("spec")), _map(item.get("metadata"))
    kind, name = str(item.get("kind")), _text(metadata, "name")
    is_daemon_set = kind == "DaemonSet"
    wanted = _number(status, "desiredNumberScheduled") if is_daemon_set else _number(spec, "replicas") if "replicas" in spec else 1
    ready = _number(status, "numberReady" if is_daemon_set else "readyReplicas")
    updated = _number(status, "updatedNumberScheduled" if is_daemon_set else "updatedReplicas")
    figures: dict[str, Any] = {"kind": kind, "wanted": wanted, "ready": ready, "updated": updated}
    if not status:
        return undecided(OBJECT, f"{kind} {name} has no status", figures)
    if ready < wanted:
        return failed(OBJECT, _HEALTH, f"{kind} {name} {ready} of {wanted} ready", figures)
    stuck = next(
        (entry for entry in _conditions(item) if _text(entry, "type") == "Progressing" and entry.get("status") == "False"), {}
    )
    if stuck:
        return failed(OBJECT, _HEALTH, f"{kind} {name} does not progress: {_text(stuck, 'reason')}", figures)
    is_old = _number(status, "observedGeneration") < _number(metadata, "generation")
    if is_old or updated < wanted or not wanted:
        return undecided(
            OBJECT, f"{kind} {name}: {updated} of {wanted} updated{', the status is of an older spec' if is_old else ''}", figures
        )
    return passed(OBJECT, figures, f"{kind} {name} {ready} of {wanted} ready")


def _of_workload(item: Kube, _: CapturedText, __: SiteValues) -> ToolReading:
    conditions = {_text(entry, "type"): entry for entry in _conditions(item)}
    is_admitted = _is(conditions, "Admitted", "True") and not _is(conditions, "QuotaReserved", "False")
    figures: dict[str, Any] = {"admitted": is_admitted}
    if is_admitted and not _is(conditions, "Evicted", "True"):
        return passed(OBJECT, figures, "workload admitted")
    quota = conditions.get("QuotaReserved", {})
    message = " ".join(_text(quota, "message").split())
    figures["reason"] = _text(quota, "reason")
    if _is(conditions, "QuotaReserved", "False") and message:
        match = re.search(r"insufficient (?:unused )?quota for (?P<what>\S+) in flavor (?P<flavor>[\w.-]+)", message)
        words = f"insufficient quota for {match['what']} in flavor {match['flavor']}" if match else message[:200]
        step = "raise the quota of the ClusterQueue, or wait for another workload to end"
        return failed(OBJECT, _RUNTIME, f"not admitted: {words}", figures, next_step=step)
    return undecided(OBJECT, "the workload waits without a stated reason", figures)


def _of_pod_group(item: Kube, _: CapturedText, __: SiteValues) -> ToolReading:
    status, spec = _map(item.get("status")), _map(item.get("spec"))
    phase, running = _text(status, "phase"), _number(status, "running")
    messages = " ".join(_text(entry, "message") for entry in _conditions(item))
    stated = re.search(r"(\d{1,6}) minAvailable", messages)
    least = _number(spec, "minMember") or (int(stated[1]) if stated else 0)
    figures: dict[str, Any] = {"phase": phase, "running": running, "min_member": least}
    if phase == "Running" and least and running >= least:
        return passed(OBJECT, figures, f"{running} of {least} members running")
    if phase == "Unknown" or (phase == "Running" and running < least):
        return failed(OBJECT, _RUNTIME, f"gang broken: {running} of {least} running", figures)
    unschedulable = next((entry for entry in _conditions(item) if _text(entry, "type") == "Unschedulable"), {})
    if phase in ("Pending", "Inqueue") and unschedulable.get("status") == "True":
        return failed(OBJECT, _RUNTIME, f"gang unschedulable: {_text(unschedulable, 'message')[:200]}", figures)
    return undecided(OBJECT, f"gang {phase or 'without a phase'}", figures)


# ---- NVIDIA --------------------------------------------------------------------------------------------------------------------


def _of_policy(item: Kube, _: CapturedText, __: SiteValues) -> ToolReading:
    status = _map(item.get("status"))
    states = {_text(entry, "name"): _text(entry, "state") for entry in _maps(status.get("appliedStates"))}
    overall = _text(status, "state")
    bad = [name for name, state in states.items() if state not in ("ready", "ignore")]
    figures: dict[str, Any] = {"overall": [overall] if overall else [], "states": dict(list(states.items())[:MOST_FIGURES])}
    if bad:
        figures["not_ready"] = bad
        return failed(OBJECT, _HEALTH, f"{', '.join(bad[:5])} {states[bad[0]]}", figures)
    if overall and overall != "ready":
        return failed(OBJECT, _HEALTH, f"policy {overall}", figures)
    if overall == "ready":
        ready = sum(state == "ready" for state in states.values())
        return passed(OBJECT, figures, f"policy ready{f', {ready} states ready, {len(states) - ready} ignored' if states else ''}")
    return undecided(OBJECT, "the policy's own state is missing, or the dump is cut", figures)


def _of_slices(slices: list[Kube], site: SiteValues, *, is_whole: bool) -> ToolReading:
    devices: dict[str, dict[str, int]] = {}
    for item in slices:
        spec = _map(item.get("spec"))
        nodes = devices.setdefault(_text(spec, "driver"), {})
        node = _text(spec, "nodeName") or "all nodes"
        nodes[node] = nodes.get(node, 0) + len(_maps(spec.get("devices")))
    figures: dict[str, Any] = {"slices": len(slices), "devices_per_driver_and_node": devices}
    gpus = next((nodes for driver, nodes in devices.items() if driver.startswith("gpu.")), {})
    if not is_whole:
        return undecided(OBJECT, "the list has no end, or single slices are no list", figures)
    if site.gpu_nodes is None or site.expected_gpus is None:
        step = "state them: --expect gpu_nodes=N --expect expected_gpus=N"
        return undecided(OBJECT, "no numbers of nodes and GPUs are stated", figures, next_step=step)
    if len(gpus) != site.gpu_nodes:
        return failed(OBJECT, _HEALTH, f"GPUs of {len(gpus)} of {site.gpu_nodes} nodes are published", figures)
    short = [f"{node} {number}" for node, number in gpus.items() if number != site.expected_gpus]
    if short:
        return failed(OBJECT, FailureClass.HARDWARE, f"not {site.expected_gpus} GPUs: {', '.join(short[:5])}", figures)
    return passed(OBJECT, figures, f"{count(site.expected_gpus, 'GPU')} on each of {count(len(gpus), 'node')}")


def _of_node(item: Kube, captured: CapturedText, site: SiteValues) -> ToolReading:
    conditions = {_text(entry, "type"): entry for entry in _conditions(item)}
    if conditions and not _is(conditions, "Ready", "True"):
        name = _text(_map(item.get("metadata")), "name")
        return failed(
            OBJECT, _HEALTH, f"node {name} not ready: {_text(conditions.get('Ready'), 'message')[:200]}", {"kind": "Node"}
        )
    reading = _of_node_state(item, conditions) or _of_allocatable(item, site)
    if reading is not None:
        return reading
    return _of_labels(_map(_map(item.get("metadata")).get("labels")), captured, site)


_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def _of_node_state(item: Kube, conditions: Mapping[str, Kube]) -> ToolReading | None:
    """Return the reading of a node that is cordoned, under pressure, or without a status; None if it takes pods."""
    name, figures = _text(_map(item.get("metadata")), "name"), {"kind": "Node"}
    if not conditions:
        return undecided(OBJECT, f"the dump of node {name} has no conditions", figures, expected="the whole object")
    pressed = [kind for kind in _PRESSURES if _is(conditions, kind, "True")]
    if pressed:
        return failed(OBJECT, _HEALTH, f"node {name} reports {', '.join(pressed)}", figures)
    if _map(item.get("spec")).get("unschedulable") is True:
        step = f"kubectl uncordon {name}, once the reason for the cordon is gone"
        return failed(OBJECT, _HEALTH, f"node {name} is cordoned", figures, next_step=step)
    return None


def _of_allocatable(item: Kube, site: SiteValues) -> ToolReading | None:
    """Return the reading of a node that offers fewer GPUs than it has; None if it offers all of them."""
    status, labels = _map(item.get("status")), _map(_map(item.get("metadata")).get("labels"))
    name = _text(_map(item.get("metadata")), "name")
    offered, capacity = _resources(status.get("allocatable")), _resources(status.get("capacity"))
    figures = {"kind": "Node", "allocatable": offered, "capacity": capacity}
    step = "read the log of the device plugin on this node: it takes unhealthy GPUs out of allocatable"
    for resource, number in capacity.items():
        if offered.get(resource, 0) < number:
            words = f"{offered.get(resource, 0)} of {number} {resource} allocatable on node {name}"
            return failed(OBJECT, FailureClass.HARDWARE, words, figures, next_step=step)
    if site.expected_gpus is None or _text(labels, "nvidia.com/mig.strategy") not in ("", "none"):
        return None
    replicas = _text(labels, "nvidia.com/gpu.replicas")
    each = int(replicas) if replicas.isdecimal() and 0 < len(replicas) < 6 else 1
    total = sum(number for resource, number in offered.items() if resource in ("nvidia.com/gpu", "nvidia.com/gpu.shared"))
    if total != site.expected_gpus * max(each, 1):
        words = f"{total} GPUs allocatable instead of {site.expected_gpus * max(each, 1)} on node {name}"
        return failed(OBJECT, FailureClass.HARDWARE, words, figures, next_step=step)
    return None


def _resources(value: Any) -> dict[str, int]:
    """Return the numbers of NVIDIA's extended resources."""
    quantities = {name: str(number) for name, number in _map(value).items() if name.startswith("nvidia.com/")}
    return {name: int(number) for name, number in quantities.items() if number.isdecimal() and len(number) < 10}


def _of_labels(labels: Mapping[str, Any], _: CapturedText, site: SiteValues) -> ToolReading:
    def label(name: str) -> str:
        value = labels.get(f"nvidia.com/{name}")
        return value if isinstance(value, str) else ""

    mig = {
        name.removeprefix("nvidia.com/").removesuffix(".count"): value
        for name, value in labels.items()
        if re.fullmatch(r"nvidia\.com/mig-[\w.]+\.count", name)
    }
    figures: dict[str, Any] = {
        "gpu_product": label("gpu.product"),
        "gpu_count": label("gpu.count"),
        "mig_strategy": label("mig.strategy"),
        "mig_strategy_label": label("mig.strategy"),
        "mig_config": label("mig.config"),
        "mig_config_state": label("mig.config.state"),
        "mig_counts": mig,
    }
    if figures["mig_config_state"] == "failed":
        words = f"MIG configuration {figures['mig_config']} failed"
        return failed(OBJECT, _RUNTIME, words, figures, next_step="read the log of nvidia-mig-manager on this node")
    if site.expected_mig_config is not None and figures["mig_config"] != site.expected_mig_config:
        words = f"MIG configuration {figures['mig_config'] or 'none'} instead of {site.expected_mig_config}"
        return failed(OBJECT, FailureClass.INPUT, words, figures)
    if site.expected_gpus is None:
        return undecided(OBJECT, "no number of GPUs is stated", figures, next_step="state it: --expect expected_gpus=N")
    if figures["gpu_count"] != str(site.expected_gpus):
        words = f"{figures['gpu_count'] or 'no'} GPUs instead of {site.expected_gpus}"
        return failed(OBJECT, FailureClass.HARDWARE, words, figures)
    if figures["mig_config"] and figures["mig_config_state"] != "success":
        return undecided(OBJECT, f"state of the MIG configuration: {figures['mig_config_state'] or 'none'}", figures)
    return passed(OBJECT, figures, f"{figures['gpu_count']} {figures['gpu_product']}")


# ---- parts of objects ----------------------------------------------------------------------------------------------------------


def _map(value: Any) -> Kube:
    return value if isinstance(value, dict) else {}


def _maps(value: Any) -> list[Kube]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _text(value: Any, key: str) -> str:
    text = _map(value).get(key)
    return text if isinstance(text, str) else ""


def _number(value: Any, key: str) -> int:
    number = _map(value).get(key)
    return number if isinstance(number, int) and not isinstance(number, bool) and abs(number) < 10**9 else 0


def _conditions(item: Kube) -> list[Kube]:
    return _maps(_map(item.get("status")).get("conditions"))


def _is(conditions: Mapping[str, Kube], kind: str, status: str) -> bool:
    return conditions.get(kind, {}).get("status") == status
