"""Readings of what kubectl prints for people: tables of `get`, and `describe` of pods, nodes and Volcano jobs."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.readers import kubectl_tables
from steps.readers.kubectl_tables import KubectlTable, PodRow
from steps.readings.captured_text import CapturedText
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ReadingVerdict, ToolReading, failed, of_error, passed, undecided
from steps.stages.shared import reader_kubelet
from steps.stages.shared.causes import RUNTIME_REASONS

KUBECTL = "kubectl"
_HEALTH, _RUNTIME = FailureClass.HEALTH, FailureClass.RUNTIME
PATIENCE = 600
"""Seconds after which a pod that is not ready is no longer starting."""
_BAD = RUNTIME_REASONS | {"ContainerStatusUnknown", "NodeLost", "Unknown", "TopologyAffinityError"}
_SERVICES = re.compile(r"-(?:login|mysql|controller|accounting|rest|restapi|syncer|scheduler|operator)(?:-|$)")
_NODE_READY = "Ready"


def is_tables(text: str) -> bool:
    """Return True for tables of `kubectl get`."""
    return bool(kubectl_tables.pods(text[:200_000])) or any(_reader_of(table) for table in kubectl_tables.read(text[:200_000]))


def read_tables(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of all tables in a text: the worst of them. What no rule reads of a table leaves it undecided."""
    tables = kubectl_tables.read(captured.text)
    pods = kubectl_tables.pods(captured.text)
    is_cut = bool(tables and tables[-1].is_cut) or not captured.ends_with_line
    readings: list[ToolReading] = [
        reader(table, captured, site) for table in tables if table.rows and (reader := _reader_of(table))
    ]
    if pods:
        readings.append(_of_pods(pods, is_cut=is_cut))
    if missing := next(_not_read(tables, pods), ""):
        readings.append(undecided(KUBECTL, missing, {}, next_step="capture the whole output of a plain `kubectl get`"))
    order = [ReadingVerdict.FAIL, ReadingVerdict.INCONCLUSIVE, ReadingVerdict.PASS]
    readings.sort(key=lambda reading: order.index(reading.verdict))
    worst = readings[0]
    figures = {name: value for reading in reversed(readings) for name, value in reading.figures.items()}
    figures |= {"truncated": True} if is_cut else {}
    if worst.is_pass and is_cut:
        return undecided(KUBECTL, "the last row is cut", figures)
    return msgspec.structs.replace(worst, figures=figures)


def _not_read(tables: tuple[KubectlTable, ...], pods: tuple[PodRow, ...]) -> Iterator[str]:
    """Yield what of some tables is not judged: tables without rows, or of an unknown kind, and rows that fit no columns."""
    for table in tables:
        names = ", ".join(table.columns)[:100]
        if table.unread:
            yield f"{count(len(table.unread), 'row')} of the table {names} cannot be read: {table.unread[0][:100]}"
        if table.columns == _BARE or table.has(*_SERVICES_TABLE):
            continue
        if not table.rows:
            yield f"the table {names} has no rows"
        elif not _is_of_pods(table) and not _reader_of(table):
            yield f"no rule reads the table {names}"
    listed = sum(len(table.rows) for table in tables if _is_of_pods(table))
    if listed > len(pods):
        yield f"{count(listed - len(pods), 'pod')} cannot be read"


_BARE, _SERVICES_TABLE = ("NAME", "AGE"), ("TYPE", "CLUSTER-IP")
"""Columns of tables that hold no state."""


def _is_of_pods(table: KubectlTable) -> bool:
    return table.has("READY", "STATUS", "RESTARTS")


def _reader_of(table: KubectlTable) -> Any:
    """Return the function that reads a table; None for a table of pods, which is read by rows, and for an unknown one."""
    known = (
        (("DESIRED", "CURRENT", "READY", "NODE SELECTOR"), _of_daemon_sets),
        (("DESIRED", "CURRENT", "READY"), _of_replica_sets),
        (("TYPE", "REASON", "OBJECT", "MESSAGE"), _of_events),
        (("STATUS", "ROLES", "VERSION"), _of_nodes),
        (("NODE", "DRIVER", "POOL"), _of_slices),
        (("COMPLETIONS", "DURATION"), _of_jobs),
        (("SYNC STATUS", "HEALTH STATUS"), _of_applications),
        (("NAME", "STATE", "AGE"), _of_claims),
        (("NAME", "READY", "STATUS"), _of_conditions),
        (("NAME", "STATUS", "AGE"), _of_policies),
        (("NAME", "READY", "AGE"), _of_workloads),
    )
    if _is_of_pods(table):
        return None
    return next((reader for columns, reader in known if table.has(*columns)), None)


# ---- pods ----------------------------------------------------------------------------------------------------------------------


def _of_pods(pods: tuple[PodRow, ...], *, is_cut: bool) -> ToolReading:
    bad = [pod for pod in pods if _is_bad(pod.status.removeprefix("Init:"))]
    leaving = [pod for pod in pods if pod.status == "Terminating"]
    waiting = [pod for pod in pods if pod not in bad and pod not in leaving and not _is_fine(pod)]
    counted = bad or pods
    figures: dict[str, Any] = {
        "pods": len(pods),
        "running": sum(pod.status == "Running" for pod in pods),
        "not_ok": len(bad) + len(waiting) + len(leaving),
        "restarts": sum(pod.restarts for pod in counted),
    }
    figures |= {"crash": [pod.name for pod in bad]} if bad else {}
    figures |= {"waiting": len(waiting)} if waiting else {}
    if any(_SERVICES.search(pod.name) for pod in pods) and any("slurm" in pod.name for pod in pods):
        figures["compute_pods"] = sum(bool(re.search(r"-\d+$", pod.name)) and not _SERVICES.search(pod.name) for pod in pods)
    if bad:
        first = bad[0]
        more = f" and {len(bad) - 1} more" if bad[1:] else ""
        restarts = f", {count(first.restarts, 'restart')}" if first.restarts else ""
        step = f"kubectl logs {first.name} --previous; kubectl describe pod {first.name}"
        cause = f"{_workload(first.name)} pod in {first.status}{restarts}{more}"
        return failed(KUBECTL, _RUNTIME, cause, figures, next_step=step)
    late = [pod for pod in waiting if pod.age >= PATIENCE]
    if late and not leaving:
        states = dict.fromkeys(pod.status if pod.status != "Running" else "Running, not ready," for pod in late)
        youngest = min(pod.age for pod in late)
        age = f"{youngest // 60} minutes" if youngest < 7200 else f"{youngest // 3600} hours"
        words = "pod waits" if len(late) == 1 else "pods wait"
        cause = f"{_number(len(late))} {words} in {', '.join(states)} for {age}"
        step = f"kubectl describe pod {late[0].name}"
        return failed(KUBECTL, _HEALTH, cause, figures, next_step=step)
    if waiting or leaving:
        names = ", ".join(f"{pod.name} {pod.status}" for pod in (leaving or waiting)[:5])
        return undecided(KUBECTL, f"not ready yet: {names}", figures)
    if is_cut:
        return undecided(KUBECTL, "the last row is cut", figures)
    return passed(KUBECTL, figures, f"{count(len(pods), 'pod')} running or completed")


def _is_bad(status: str) -> bool:
    return status in _BAD or status.startswith(("OutOf", "ExitCode:", "Signal:"))


def _is_fine(pod: PodRow) -> bool:
    return pod.status in ("Completed", "Succeeded") or (pod.status == "Running" and pod.ready == pod.containers > 0)


def _workload(pod: str) -> str:
    """Return the name of a pod's workload: without the hashes that a Deployment, Job or DaemonSet appends."""
    return re.sub(r"(?:-[a-f0-9]{7,10})?-[a-z0-9]{5}$", "", pod)


def _number(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number] if number < len(words) else str(number)


# ---- other tables --------------------------------------------------------------------------------------------------------------


def _of_daemon_sets(table: KubectlTable, _: CapturedText, site: SiteValues) -> ToolReading:
    sets = [(row["NAME"], _int(row["DESIRED"]), _int(row["READY"])) for row in table.rows]
    short = {name: [desired, ready] for name, desired, ready in sets if desired != ready}
    figures: dict[str, Any] = {"daemon_sets": len(sets)} | ({"short": short} if short else {})
    if short:
        name, (desired, ready) = next(iter(short.items()))
        more = f" and {len(short) - 1} more" if len(short) > 1 else ""
        return failed(KUBECTL, _HEALTH, f"{name} {ready} of {desired} ready{more}", figures)
    if late := _unfinished(table, "DESIRED"):
        return undecided(KUBECTL, f"rollout not finished: {late}", figures)
    largest = max((desired for name, desired, _ in sets if "node-feature" not in name), default=0)
    if site.gpu_nodes is None or not largest:
        words = "every DaemonSet is ready, and no number of nodes is stated"
        return undecided(KUBECTL, words, figures, next_step="state it: --expect gpu_nodes=N")
    if not any(desired == site.gpu_nodes for _, desired, _ in sets):
        return undecided(KUBECTL, f"no DaemonSet is on {site.gpu_nodes} nodes", figures)
    return passed(KUBECTL, figures, f"{count(len(sets), 'DaemonSet')} ready")


def _unfinished(table: KubectlTable, wanted: str) -> str:
    """Return the first rows whose pods of the current revision, or available pods, are fewer than the wanted ones."""
    columns = [column for column in ("UP-TO-DATE", "AVAILABLE") if column in table.columns]
    late = (
        f"{row['NAME']} {column} {row[column] or 'empty'}"
        for row in table.rows
        for column in columns
        if row[column] != row[wanted].rpartition("/")[2]
    )
    return ", ".join(itertools.islice(late, 5))


def _of_replica_sets(table: KubectlTable, _: CapturedText, __: SiteValues) -> ToolReading:
    """Return the reading of ReplicaSets; those of earlier revisions stay at zero."""
    short = [f"{row['NAME']} {row['READY']} of {row['DESIRED']}" for row in table.rows if row["DESIRED"] != row["READY"]]
    figures: dict[str, Any] = {"replica_sets": len(table.rows)}
    if short:
        return failed(KUBECTL, _HEALTH, f"not ready: {', '.join(short[:5])}", figures | {"short": short})
    if not any(_int(row["DESIRED"]) > 0 for row in table.rows):
        return undecided(KUBECTL, "every ReplicaSet is at zero", figures)
    return passed(KUBECTL, figures, f"{count(len(table.rows), 'ReplicaSet')} ready")


_FAILING_EVENTS = frozenset(
    {"FailedScheduling", "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedCreate", "Failed", "BackOff",
     "FailedBinding", "ProvisioningFailed", "Evicted", "OOMKilling", "PodGroupPending", "Unschedulable", "FailedPreStopHook"}
)  # fmt: skip


def _of_events(table: KubectlTable, _: CapturedText, __: SiteValues) -> ToolReading:
    warnings = [row for row in table.rows if row["TYPE"] == "Warning"]
    figures: dict[str, Any] = {"events": len(table.rows), "warnings": len(warnings)}
    failing = [row for row in warnings if row["REASON"] in _FAILING_EVENTS]
    if failing:
        if error := reader_kubelet.cause(row["MESSAGE"] for row in failing):
            return of_error(KUBECTL, error, figures)
        row = failing[-1]
        return failed(KUBECTL, _RUNTIME, f"{row['OBJECT']} {row['REASON']}: {row['MESSAGE'][:200]}", figures)
    if other := [row for row in table.rows if row["TYPE"] not in ("Normal", "Warning")]:
        return undecided(KUBECTL, f"event of {other[0]['OBJECT']} without a type", figures)
    if warnings:
        return undecided(KUBECTL, f"{warnings[-1]['OBJECT']} {warnings[-1]['REASON']}: {warnings[-1]['MESSAGE'][:200]}", figures)
    return passed(KUBECTL, figures, f"{count(len(table.rows), 'event')}, none a warning")


def _of_nodes(table: KubectlTable, _: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of Nodes; of one that stands twice, every line counts."""
    states = [(row["NAME"], row["STATUS"].split(",")) for row in table.rows]
    names = dict.fromkeys(name for name, _ in states)
    bad = list(dict.fromkeys(name for name, words in states if _NODE_READY not in words))
    figures: dict[str, Any] = {"nodes": len(names), "not_ready": bad}
    if bad:
        return failed(KUBECTL, _HEALTH, f"node {', '.join(bad[:5])} NotReady", figures, next_step=f"kubectl describe node {bad[0]}")
    if cordoned := [name for name, words in states if "SchedulingDisabled" in words]:
        return undecided(KUBECTL, f"node {', '.join(cordoned[:5])} takes no pods", figures)
    if site.nodes is None or len(names) != site.nodes:
        return undecided(KUBECTL, f"{count(len(names), 'node')} ready, {site.nodes} stated", figures)
    return passed(KUBECTL, figures, f"{count(len(names), 'node')} ready")


def _of_slices(table: KubectlTable, _: CapturedText, site: SiteValues) -> ToolReading:
    nodes: dict[str, set[str]] = {}
    for row in table.rows:
        nodes.setdefault(row["DRIVER"], set()).add(row["NODE"])
    figures: dict[str, Any] = {
        "slices": len(table.rows),
        "nodes_per_driver": {driver: len(names) for driver, names in nodes.items()},
    }
    gpu = next((len(names) for driver, names in nodes.items() if driver.startswith("gpu.")), 0)
    if site.gpu_nodes is None:
        return undecided(KUBECTL, "no number of nodes is stated", figures, next_step="state it: --expect gpu_nodes=N")
    if gpu != site.gpu_nodes:
        return failed(KUBECTL, _HEALTH, f"driver of GPUs publishes slices of {gpu} of {site.gpu_nodes} nodes", figures)
    return passed(KUBECTL, figures, f"GPUs of {gpu} nodes are published")


def _of_workloads(table: KubectlTable, _: CapturedText, __: SiteValues) -> ToolReading:
    short = [f"{row['NAME']} {row['READY']}" for row in table.rows if not re.fullmatch(r"(\d+)/\1", row["READY"])]
    figures: dict[str, Any] = {"workloads": len(table.rows), "short": short}
    if short:
        return failed(KUBECTL, _HEALTH, f"not ready: {', '.join(short[:5])}", figures)
    if empty := [row["NAME"] for row in table.rows if row["READY"] == "0/0"]:
        return undecided(KUBECTL, f"at zero: {', '.join(empty[:5])}", figures)
    if late := _unfinished(table, "READY"):
        return undecided(KUBECTL, f"rollout not finished: {late}", figures)
    return passed(KUBECTL, figures, f"{count(len(table.rows), 'workload')} ready")


def _of_jobs(table: KubectlTable, _: CapturedText, __: SiteValues) -> ToolReading:
    open_jobs = [row["NAME"] for row in table.rows if not re.fullmatch(r"([1-9]\d*)/\1", row["COMPLETIONS"])]
    bad = [row["NAME"] for row in table.rows if row.get("STATUS") in ("Failed", "FailureTarget")]
    figures: dict[str, Any] = {"jobs": len(table.rows), "open": open_jobs}
    if bad:
        return failed(KUBECTL, _RUNTIME, f"Job {bad[0]} failed", figures)
    open_jobs = open_jobs or [row["NAME"] for row in table.rows if row.get("STATUS", "Complete") != "Complete"]
    if open_jobs:
        return undecided(KUBECTL, f"not complete: {', '.join(open_jobs[:5])}", figures)
    return passed(KUBECTL, figures, f"{count(len(table.rows), 'Job')} complete")


def _of_applications(table: KubectlTable, _: CapturedText, __: SiteValues) -> ToolReading:
    odd = [row for row in table.rows if (row["SYNC STATUS"], row["HEALTH STATUS"]) != ("Synced", "Healthy")]
    figures: dict[str, Any] = {
        "applications": len(table.rows),
        "health": [row["HEALTH STATUS"] for row in table.rows],
        "sync": [row["SYNC STATUS"] for row in table.rows],
    }
    words = [f"{row['NAME']} {row['SYNC STATUS']}, {row['HEALTH STATUS']}" for row in odd]
    if any(row["HEALTH STATUS"] in ("Degraded", "Missing") for row in odd):
        return failed(KUBECTL, _HEALTH, "; ".join(words[:5]), figures)
    if any(row["SYNC STATUS"] == "Unknown" for row in odd):
        return failed(KUBECTL, FailureClass.COMPARISON, "; ".join(words[:5]), figures)
    if odd:
        return undecided(KUBECTL, "; ".join(words[:5]), figures)
    return passed(KUBECTL, figures, f"{count(len(table.rows), 'Application')} Synced and Healthy")


def _of_claims(table: KubectlTable, captured: CapturedText, _: SiteValues) -> ToolReading:
    states = _states(table, "STATE")
    figures: dict[str, Any] = {"claims": states}
    waiting = [name for name, state in states.items() if "allocated" not in state]
    # a claim goes back to pending when its pod has completed
    pods = kubectl_tables.pods(captured.text)
    if waiting and (not pods or any(pod.status != "Completed" for pod in pods)):
        return undecided(KUBECTL, f"claim {', '.join(waiting[:5])} pending", figures)
    return passed(KUBECTL, figures, f"{count(len(states), 'claim')} allocated, or used by a pod that completed")


def _states(table: KubectlTable, column: str) -> dict[str, str]:
    """Return name → state; objects of one name, in several namespaces or lines, get theirs joined."""
    states: dict[str, list[str]] = {}
    for row in table.rows:
        states.setdefault(row["NAME"], []).append(row[column] or "unknown")
    return {name: ", ".join(dict.fromkeys(words)) for name, words in states.items()}


def _of_conditions(table: KubectlTable, _: CapturedText, __: SiteValues) -> ToolReading:
    bad = [row for row in table.rows if row["READY"] == "False"]
    figures: dict[str, Any] = {"objects": len(table.rows), "not_ready": [row["NAME"] for row in bad]}
    if bad:
        return failed(KUBECTL, _HEALTH, f"{bad[0]['NAME']} not ready: {bad[0]['STATUS'][:200]}", figures)
    if any(row["READY"] != "True" for row in table.rows):
        return undecided(KUBECTL, "not every object tells that it is ready", figures)
    return passed(KUBECTL, figures, f"{count(len(table.rows), 'object')} ready")


def _of_policies(table: KubectlTable, _: CapturedText, __: SiteValues) -> ToolReading:
    states = _states(table, "STATUS")
    figures: dict[str, Any] = {"status": states}
    good = ("ready", "Ready", "Active", "Bound", "Available")
    failing = ("notReady", "NotReady", "error", "Lost", "Failed")
    bad = next((row for row in table.rows if row["STATUS"] in failing), None)
    if bad:
        return failed(KUBECTL, _HEALTH, f"{bad['NAME']} {bad['STATUS']}", figures)
    if any(state not in good for state in states.values()):
        return undecided(KUBECTL, f"status {', '.join(dict.fromkeys(states.values()))}", figures)
    return passed(KUBECTL, figures, ", ".join(f"{name} {state}" for name, state in list(states.items())[:5]))


def _int(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else -1


# ---- describe ------------------------------------------------------------------------------------------------------------------

_CONTAINER = re.compile(r"^  (?P<name>[a-z0-9][\w.-]*):[ \t]*$")
_HEADING = re.compile(
    r"^(?:System Info|Non-terminated Pods|Allocated resources|Conditions|Events|Volumes|QoS Class|Node-Selectors|Tolerations|Status"
    r"|PodCIDRs?|Addresses|Taints|Lease|IPs?|Controlled By):"
)
"""Headings of a description after the sections that are read; lines of other programs may stand between."""
_EVENT = re.compile(
    r"^[ \t]*Warning[ \t]+(?P<reason>\w+)[ \t]+[\w<>]+(?: \(x\d+ over \w+\))?[ \t]+\S+[ \t]+(?P<what>\S[^\n]*)$", re.MULTILINE
)
_CAPACITY = re.compile(r"^(?P<section>Capacity|Allocatable):[ \t]*$")
_RESOURCE = re.compile(r"^[ \t]+nvidia\.com/(?:gpu|mig-[\w.]+)(?:\.shared)?:[ \t]+(?P<count>\d{1,6})[ \t]*$")


def is_description(text: str) -> bool:
    """Return True for `kubectl describe` of a pod, a node or a Volcano job."""
    words = r"^(?:Init )?Containers:[ \t]*$|^Capacity:[ \t]*$|^Task Status Count:|^  Task Status Count:[ \t]*$"
    words += r"|^[ \t]*Type[ \t]+Reason[ \t]+Age[ \t]+From[ \t]+Message"
    return re.search(words, text, re.MULTILINE) is not None


def read_description(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of a description."""
    text = captured.text
    if re.search(r"^Capacity:", text, re.MULTILINE):
        return _of_capacity(text, site)
    if "Task Status Count:" in text:
        return _of_volcano_job(text)
    return _of_pod(text)


_CONDITION = re.compile(
    r"^  (?P<kind>Ready|MemoryPressure|DiskPressure|PIDPressure|NetworkUnavailable)[ \t]+(?P<status>True|False|Unknown)"
    r"(?:[ \t]+\w{3}, \d\d \w{3} \d{4} [\d:]{8} [+-]\d{4}){0,2}[ \t]+(?P<what>[^\n]*)$",
    re.MULTILINE,
)


def _of_node_state(text: str) -> ToolReading | None:
    """Return the reading of a described node that takes no pods by its conditions or its cordon; None if it takes pods."""
    for match in _CONDITION.finditer(text):
        if (match["status"] == "True") is not (match["kind"] == _NODE_READY):
            what = " ".join(match["what"].split())[:200]
            words = f"{_described_node(text, match.start())} reports {match['kind']} {match['status']}: {what}"
            return failed(KUBECTL, _HEALTH, words, {}, next_step="read the kubelet's log of this node (journalctl -u rke2-agent)")
    if cordoned := re.search(r"^Unschedulable:[ \t]+true", text, re.MULTILINE):
        words = f"{_described_node(text, cordoned.start())} is cordoned"
        return failed(KUBECTL, _HEALTH, words, {}, next_step="kubectl uncordon it, once the reason is gone")
    return None


def _described_node(text: str, end: int) -> str:
    """Return the name of the node whose description has this place; several nodes can be described in one text."""
    names = re.findall(r"^Name:[ \t]+(\S+)", text[:end], re.MULTILINE)
    return f"node {names[-1]}" if names else "the node"


def _of_capacity(text: str, site: SiteValues) -> ToolReading:
    if (state := _of_node_state(text)) is not None:
        return state
    amounts: dict[str, int] = {}
    section = ""
    for line in text.splitlines():
        if match := _CAPACITY.match(line):
            section = match["section"].lower()
        elif _HEADING.match(line):
            section = ""
        elif section and (match := _RESOURCE.match(line)):
            amounts[section] = amounts.get(section, 0) + int(match["count"])
    capacity, allocatable = amounts.get("capacity"), amounts.get("allocatable")
    figures: dict[str, Any] = {"capacity_gpu": capacity, "allocatable_gpu": allocatable}
    if capacity is None or allocatable is None:
        return undecided(KUBECTL, "capacity or allocatable of nvidia.com/gpu is missing, or the output is cut", figures)
    if allocatable < capacity:
        return failed(KUBECTL, _HEALTH, f"{allocatable} of {capacity} GPUs allocatable", figures)
    if site.expected_gpus is None:
        return undecided(KUBECTL, f"{count(capacity, 'slot')}, and no number of GPUs is stated", figures)
    replicas = site.replicas_per_gpu or 1
    if site.expected_gpus:
        figures["replicas"] = capacity // site.expected_gpus
    if capacity != site.expected_gpus * replicas:
        wanted = f"{site.expected_gpus} GPUs with {count(replicas, 'slot')} each"
        return failed(KUBECTL, FailureClass.HARDWARE, f"{count(capacity, 'slot')} instead of {wanted}", figures)
    return passed(KUBECTL, figures, f"{count(capacity, 'slot')} on {count(site.expected_gpus, 'GPU')}, all allocatable")


def _of_volcano_job(text: str) -> ToolReading:
    phase = re.search(r"^ {4}Phase:[ \t]+(\w+)", text, re.MULTILINE)
    pending = re.search(r"^ {2}Pending:[ \t]+(\d{1,6})", text, re.MULTILINE)
    figures: dict[str, Any] = {"phase": phase[1] if phase else "", "pending": int(pending[1]) if pending else 0}
    waits = re.search(r"\b(PodGroupPending|Unschedulable)\b", text)
    if phase and phase[1] in ("Failed", "Aborted", "Terminated"):
        return failed(KUBECTL, _RUNTIME, f"job {phase[1]}", figures)
    if pending and waits:
        tasks = count(figures["pending"], "task")
        step = "compare the tasks' requests with the queue and with what nodes have free"
        return failed(KUBECTL, _RUNTIME, f"gang unschedulable: {tasks} Pending, {waits[1]}", figures, next_step=step)
    if phase and phase[1] == "Completed":
        return passed(KUBECTL, figures, "job Completed")
    return undecided(KUBECTL, f"phase {figures['phase'] or 'unknown'}", figures)


def _of_pod(text: str) -> ToolReading:
    containers = list(_containers(text))
    figures: dict[str, Any] = {"containers": len(containers)}
    for kind, name, reason in containers:
        if reason in _BAD:
            figures |= {f"{kind}container": name, "reason": reason}
            words = f"{kind.replace('_', ' ')}container {name} in {reason}"
            step = f"kubectl logs -c {name} --previous: why it ends; the Events below"
            error = reader_kubelet.cause(text.splitlines()) if reason not in ("CrashLoopBackOff", "Error") else None
            return of_error(KUBECTL, error, figures) if error else failed(KUBECTL, _RUNTIME, words, figures, next_step=step)
    status = re.search(r"^Status:[ \t]+(\w+)", text, re.MULTILINE)
    ready = re.search(r"^ {2}Ready[ \t]+(True|False)[ \t]*$", text, re.MULTILINE)
    figures["status"] = status[1] if status else ""
    if figures["status"] == "Succeeded" or (figures["status"] == "Running" and ready and ready[1] == "True" and "Events:" in text):
        return passed(KUBECTL, figures, f"pod {figures['status']}")
    if error := reader_kubelet.cause(line for line in text.splitlines() if "Warning" in line):
        return of_error(KUBECTL, error, figures)
    if warnings := [match for match in _EVENT.finditer(text) if match["reason"] in _FAILING_EVENTS]:
        return failed(KUBECTL, _RUNTIME, f"{warnings[0]['reason']}: {warnings[0]['what'][:300]}", figures)
    return undecided(KUBECTL, f"pod {figures['status'] or 'of unknown status'}, not ready as far as the text tells", figures)


def _containers(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield kind (`init_` or empty), name and reason of each container; the reason of its present state."""
    kind, name, is_state, reason = "", "", False, ""
    for line in text.splitlines():
        if re.match(r"^(?:Init )?Containers:", line):
            if name:
                yield kind, name, reason
            kind, name, reason = ("init_" if line.startswith("Init") else ""), "", ""
        elif match := _CONTAINER.match(line):
            if name:
                yield kind, name, reason
            name, reason = match["name"], ""
        elif re.match(r"^ +(?:Last )?State:", line):
            is_state = not line.lstrip().startswith("Last")
        elif is_state and (match := re.match(r"^ +Reason:[ \t]+(\w+)", line)) and not reason:
            reason = match[1]
        elif _HEADING.match(line):
            if name:
                yield kind, name, reason
            name = ""
    if name:
        yield kind, name, reason
