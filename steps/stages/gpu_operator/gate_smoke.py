"""Judges the report of check `cuda-smoke` on a node: all GPUs, a CUDA kernel on each, alike with other nodes, and exported."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from steps.contract.node_tests.fleet_facts import FleetFact
from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import FailureClass, NodeVerdict
from steps.stages.gpu_operator import gate_pools
from steps.stages.gpu_operator.contract import FunctionalExpectation
from steps.stages.shared import gate_alike, gate_checks
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown

COMPARED = (FleetFact.DRIVER, FleetFact.DRIVER_FLAVOUR, FleetFact.CUDA, FleetFact.VBIOS)
"""Facts in the report by which nodes are compared; each is a text under its name, but `vbios` is a list in the order of `uuids`."""


class Compared(NamedTuple):
    """The values of one fact by node, without nodes that do not report it, and their comparison."""

    values: Mapping[str, str]
    comparison: gate_alike.Comparison


Survey = Mapping[FleetFact, Compared]
Owners = Mapping[str, list[str]]
"""UUID of a GPU → nodes whose pod saw it."""


def survey(pods: Mapping[str, CheckPod], want: FunctionalExpectation) -> Survey:
    """Compare the facts in the reports of all nodes, in one pass for each fact."""
    shown = {fact: {name: value for name, pod in pods.items() if (value := _value(pod, fact))} for fact in COMPARED}
    return {fact: Compared(values, _compare(fact, values, want)) for fact, values in shown.items()}


def _compare(fact: FleetFact, values: Mapping[str, str], want: FunctionalExpectation) -> gate_alike.Comparison:
    """Compare a fact of all nodes; firmware only between GPUs of one product, since another product has other firmware."""
    if fact is not FleetFact.VBIOS or not want.pools:
        return gate_alike.compare(fact, values, want.may_differ)
    by_product: dict[str, dict[str, str]] = {}
    for name, value in values.items():
        by_product.setdefault(gate_pools.product(want, name), {})[name] = value
    parts = [gate_alike.compare(fact, same, want.may_differ) for same in by_product.values()]
    findings = {name: finding for part in parts for name, finding in part.findings.items()}
    return gate_alike.Comparison(findings, "; ".join(part.note for part in parts if part.note))


def judge_node(
    name: str, pod: CheckPod | None, pending: Iterable[CheckPod], want: FunctionalExpectation, owners: Owners, fleet: Survey
) -> NodeVerdict:
    """Return the verdict on one expected node. `pending` are pods of the check without a node."""
    if (strange := gate_pools.stranger(want, name)) is not None:
        return strange.of_node(name)
    expected = gate_pools.gpus(want, name)
    goal = f"{expected} GPUs visible and a CUDA kernel on each"
    if pod is None or not pod.report:
        return gate_checks.silent(pod, pending, goal).of_node(name)
    finding = _kernels(name, pod, owners, expected, goal) or _alike(name, pod, want, fleet) or _exported(pod, want, expected)
    return node_verdict(name, finding, f"{expected} GPUs, CUDA ran on {pod.report.get('passed', 0)} devices")


def _kernels(name: str, pod: CheckPod, owners: Owners, expected: int, goal: str) -> Finding | None:
    uuids, error = gate_checks.uuids(pod), str(pod.report.get("error", ""))
    devices, done = pod.report.get("devices", 0), pod.report.get("passed", 0)
    twice = [uuid for uuid in uuids if len(owners[uuid]) > 1]
    if len(set(uuids)) != expected:
        step = "nvidia-smi -L and dmesg (Xid, fallen off the bus) on the node"
        return fail(FailureClass.HARDWARE, f"{len(set(uuids))} GPUs visible {error}".rstrip(), goal, step)
    if twice:
        others = ", ".join(other for other in owners[twice[0]] if other != name) or "itself"
        step = "two node names lead to one machine, or a machine was cloned: check the inventory"
        return fail(FailureClass.INPUT, f"GPU {twice[0]} is also seen on {others}", goal, step)
    if not isinstance(devices, int) or devices < expected or done != devices:
        # with MIG a node has more devices than GPUs, so the number is a lower bound
        problem = f"a CUDA kernel ran on {done} of {devices} devices: {error}".rstrip(": ")
        step = "on NVSwitch machines see nvidia-smi -q, Fabric State; else the driver and the image's CUDA version"
        return fail(FailureClass.RUNTIME, problem, goal, step)
    return None


def _alike(name: str, pod: CheckPod, want: FunctionalExpectation, fleet: Survey) -> Finding | None:
    """Check that driver and firmware are those of most nodes, and of all GPUs of the node."""
    for fact, (values, comparison) in fleet.items():
        if name not in values and fact not in want.may_differ:
            label = gate_alike.LABELS[fact]
            return gate_alike.missing(fact, f"{label} in the report of pod {pod.name}", "nvidia-smi -q on the node")
        if fact is FleetFact.VBIOS and fact not in want.may_differ and ", " in values[name]:
            return _mixed(pod)
        if (odd := comparison.findings.get(name)) is not None:
            return odd
    return None


def _mixed(pod: CheckPod) -> Finding:
    """Return the failure of a node whose GPUs have different firmware, naming a GPU of each kind."""
    first = dict(zip(reversed(_versions(pod)), reversed(gate_checks.uuids(pod)), strict=False))
    shown = ", ".join(f"{version} on {uuid}" for version, uuid in sorted(first.items()))
    step = f"{gate_alike.REPAIRS[FleetFact.VBIOS]}, or list vbios under validation.may_differ with the reason"
    return fail(FailureClass.COMPARISON, f"VBIOS differs between GPUs of the node: {shown}", "the same on all GPUs", step)


def _exported(pod: CheckPod, want: FunctionalExpectation, expected: int) -> Finding | None:
    """Check that the node's metrics exporter serves every GPU that the check saw."""
    if not want.exporter:
        return None
    exported, error = pod.report.get("exported", -1), str(pod.report.get("exporter_error", ""))
    step = "log of the pod of nvidia-dcgm-exporter on this node, and of nvidia-dcgm if the operator runs it"
    if not isinstance(exported, int) or exported < 0:
        seen = f"the metrics exporter of this node did not answer: {error}".rstrip(": ")
        return unknown(FailureClass.HEALTH, seen, f"metrics of {expected} GPUs", step)
    if exported < expected:
        return fail(FailureClass.HEALTH, f"the metrics exporter serves {exported} of {expected} GPUs", f"all {expected}", step)
    return None


def _value(pod: CheckPod, fact: FleetFact) -> str:
    """Return a fact of a report as text; empty if it is not reported, or if nvidia-smi could not read it (`[N/A]`)."""
    if fact is FleetFact.VBIOS:
        versions = _versions(pod)
        known = (
            len(versions) == len(gate_checks.uuids(pod)) and all(versions) and not any(text.startswith("[") for text in versions)
        )
        return ", ".join(sorted(set(versions))) if known else ""
    value = pod.report.get(fact.value, "")
    return value if isinstance(value, str) and not value.startswith("[") else ""


def _versions(pod: CheckPod) -> list[str]:
    reported = pod.report.get(FleetFact.VBIOS.value)
    return list(map(str, reported)) if isinstance(reported, list) else []
