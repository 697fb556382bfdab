"""The last sentence of an acceptance: accepted with bandwidth and floor, or not accepted with what is bad and how it measured.

An acceptance ends with exactly one of two sentences. A run that measured no bandwidth, or has a skipped or unknown result, is not
accepted.
"""

from collections.abc import Iterable, Iterator

from steps.contract.host_ranges import fold
from steps.contract.measurements import Measurement
from steps.contract.plain_text import count
from steps.contract.verdict import Status
from steps.report import model

STAGE = "validation"
SLURM_STAGE = "slurm_acceptance"
LOCALISED = f"{STAGE}/localise"
"""Gate whose verdict names the node, rail, pair or path at fault; it speaks before the gates that only saw the effect."""
_TOGETHER, _IN_NODE = "NCCL bus bandwidth over all nodes", "NCCL bus bandwidth in a node"
MOST_NODES = 3
"""Nodes whose reasons the sentence repeats; the report has all."""


def sentence(report: model.Report) -> str:
    """Return the sentence of a run that has stage validation or slurm_acceptance; empty for other runs."""
    slurm = next((stage for stage in report.stages if stage.id == SLURM_STAGE), None)
    if slurm is not None:
        return _of_slurm(report, slurm)
    stage = next((stage for stage in report.stages if stage.id == STAGE), None)
    if stage is None:
        return ""
    if report.status != Status.PASS.value:
        return f"not accepted: {'; '.join(_bad(report, stage))}"
    measured = _bandwidth(report)
    if measured is None:
        return "not accepted: no bandwidth was measured"
    row, value = measured
    if row.floor is None:
        return f"not accepted: {value:g} {row.unit} of {row.quantity} has no floor: {NO_FLOOR}"
    accepted = _accepted(report)
    where = " inside a node" if row.quantity.startswith(_IN_NODE) else ""
    return f"accepted: {count(len(accepted), 'node')}, {value:g} {row.unit}{where} against a floor of {row.floor:g}{_aside(report)}"


def _of_slurm(report: model.Report, stage: model.StageReport) -> str:
    """Return the sentence of an acceptance from a login node: the reason of its bandwidth gate, else what stopped it before."""
    gate = next((gate for gate in stage.gates if gate.gate == f"{SLURM_STAGE}/bandwidth"), None)
    accepted, refused = "accepted: ", "not accepted: "
    if report.status == Status.PASS.value and gate is not None and gate.reason.startswith(accepted):
        return gate.reason
    reason = gate.reason if gate is not None and gate.reason.startswith(refused) else f"{refused}{stage.reason or report.sentence}"
    return reason.partition("; next:")[0]


NO_FLOOR = "write validation.nccl.inter_node_floor_gb_s, 0.9 × the site's measured baseline"


def _accepted(report: model.Report) -> list[str]:
    """Return the nodes that passed the validation."""
    accepted = set(report.accepted)
    return [
        node.name for node in report.nodes if node.name in accepted and any(gate.startswith(f"{STAGE}/") for gate in node.gates)
    ]


def _aside(report: model.Report) -> str:
    return f"; set aside: {fold(report.aside)}" if report.aside else ""


def _bandwidth(report: model.Report) -> tuple[Measurement, float] | None:
    """Return the measurement that counts and its value: over all nodes, else inside a node; None if there is neither."""
    for beginning in (_TOGETHER, _IN_NODE):
        for row in report.measured:
            least = {node: value for node, value in row.least.items() if node not in report.aside}
            value = row.together if row.together is not None else min(least.values(), default=None)
            if row.quantity.startswith(beginning) and value is not None:
                return row, value
    return None


def _bad(report: model.Report, stage: model.StageReport) -> Iterator[str]:
    """Yield what is at fault: the localised part, else each bad node with its reason, else the first gate that did not pass."""
    localised = next((gate for gate in stage.gates if gate.gate == LOCALISED and gate.status == Status.FAIL.value), None)
    nodes = [*_nodes(report.nodes)]
    if localised is not None and not nodes:
        yield localised.reason.partition("; expected")[0]
        return
    if nodes:
        yield from nodes[:MOST_NODES]
        if len(nodes) > MOST_NODES:
            yield f"and {count(len(nodes) - MOST_NODES, 'more node')}"
        return
    yield stage.reason if stage.status != Status.PASS.value and stage.reason else report.sentence or report.status


def _nodes(hosts: Iterable[model.HostReport]) -> Iterator[str]:
    for host in hosts:
        reason = next((text for gate, text in host.reasons.items() if gate.startswith(f"{STAGE}/")), "")
        if reason:
            seen = reason.removeprefix(f"{host.name}: ").partition("; next:")[0]
            yield seen if host.name in seen else f"node {host.name}: {seen}"
