"""Gates of gpu_operator. The operator's state `ready` alone is no proof: it is also reported when no GPU was found.

See `steps/docs/facts/gpu.md`, GPU Operator.
"""

import msgspec

from steps.contract.measurements import versions
from steps.contract.verdict import Verdict, of_nodes, passed
from steps.stages.gpu_operator import gate_root, gate_smoke
from steps.stages.gpu_operator.contract import (
    PRODUCT_LABEL,
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
    NodesExpectation,
    NodesObservation,
)
from steps.stages.gpu_operator.gate_gpu_node import judge_node, survey
from steps.stages.shared import gate_alike, gate_charts, gate_checks

CONTROL = "gpu_operator/control"
NODES = "gpu_operator/nodes"
FUNCTIONAL = "gpu_operator/functional"


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check chart, root resource, NFD and operands: the root is reconciled since its last change, and operands run on GPU nodes."""
    releases = gate_charts.problem(seen.releases, want.releases, seen.root_app, want.root_app, dated=False)
    by_name = {release.name: release for release in want.releases}
    pairs = [(state, by_name[state.name]) for state in seen.releases if state.name in by_name]
    if finding := releases or gate_root.problem(seen, want) or gate_charts.undated(pairs):
        return finding.verdict(CONTROL)
    summary = (
        f"{gate_root.roots(seen, want)[0].name} reconciled; operands serve at least {want.least} of {len(want.nodes)} GPU nodes"
    )
    return passed(CONTROL, summary, notes=gate_root.short_operands(seen, want))


# ---- nodes ---------------------------------------------------------------------------------------------------------------------


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Check that every expected node advertises all its healthy GPUs, with the right product and driver, and was validated."""
    by_name, fleet = {node.name: node for node in seen.nodes}, survey(seen, want)
    rows = [judge_node(name, by_name.get(name), want, fleet) for name in want.nodes]
    what = "all GPUs advertised, healthy and validated, drivers and kernels alike"
    products = versions({"GPU": {node.name: node.labels.get(PRODUCT_LABEL, "") for node in seen.nodes}})
    return msgspec.structs.replace(of_nodes(NODES, rows, what=what, notes=fleet.notes), versions=products)


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that on every node a pod saw all GPUs, under UUIDs that no other node has, and ran a CUDA kernel on each.

    Drivers and firmware must be alike on all nodes, and the metrics exporter of a node must serve all its GPUs.
    """
    pods = gate_checks.by_node(seen.pods)
    owners: dict[str, list[str]] = {}
    for name, pod in pods.items():
        for uuid in gate_checks.uuids(pod):
            owners.setdefault(uuid, []).append(name)
    fleet, pending = gate_smoke.survey(pods, want), gate_checks.unplaced(seen.pods)
    rows = [gate_smoke.judge_node(name, pods.get(name), pending, want, owners, fleet) for name in want.nodes]
    what, notes = "a CUDA kernel ran on every GPU", [fact.comparison.note for fact in fleet.values() if fact.comparison.note]
    in_use = versions({gate_alike.LABELS[fact]: compared.values for fact, compared in fleet.items()})
    verdict = msgspec.structs.replace(of_nodes(FUNCTIONAL, rows, what=what, notes=notes), versions=in_use)
    return gate_checks.conclude(verdict)
