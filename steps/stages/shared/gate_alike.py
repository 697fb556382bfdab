"""Compares a fact of all nodes with each other: the nodes that differ from most others fail, and both values are named.

A fleet must be homogeneous by default: collectives run at the speed of the odd node, and a fault that only one driver or firmware
has looks like a bad machine. The spec can list facts that may differ, each with a reason; these are only noted.
"""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from steps.contract.node_tests.fleet_facts import FleetFact
from steps.contract.plain_text import some
from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown

LABELS = {
    FleetFact.DRIVER: "driver version",
    FleetFact.DRIVER_FLAVOUR: "flavour of the driver's kernel module",
    FleetFact.CUDA: "CUDA version",
    FleetFact.KERNEL: "kernel",
    FleetFact.VBIOS: "VBIOS",
    FleetFact.POWER_LIMIT: "power limit of GPUs",
    FleetFact.NIC_FIRMWARE: "NIC firmware",
}
"""Fact → words for it in a sentence."""

REPAIRS = {
    FleetFact.DRIVER: "install the driver of the others there, or restart its driver pod, which updates on delete only",
    FleetFact.DRIVER_FLAVOUR: "install the driver of the others there (kernel module type: open or proprietary)",
    FleetFact.CUDA: "install the driver of the others there",
    FleetFact.KERNEL: "install the kernel of the others there and reboot",
    FleetFact.VBIOS: "update the GPU's firmware with the machine's vendor",
    FleetFact.POWER_LIMIT: "set the power limit of the others there (nvidia-smi -pl), and see what sets it when the node boots",
    FleetFact.NIC_FIRMWARE: "update the NIC's firmware (mlxfwmanager) and reset it",
}
"""Fact → what a person does on the odd node."""

NAMED, VALUES = 3, 4
"""Most nodes named for one value, and most values named in a sentence without a majority."""


class Comparison(Struct, frozen=True):
    """Result of comparing one fact: a finding for each odd node, and a note if the spec allows the differences."""

    findings: dict[str, Finding] = {}
    note: str = ""


def compare(fact: FleetFact, values: Mapping[str, str], may_differ: Mapping[str, str]) -> Comparison:
    """Compare a fact of nodes. `values` are node → value, of the nodes that show one.

    `may_differ` maps the facts that may differ to reasons. If no value is on more than half of the nodes, nothing tells which is
    right, and every node fails.
    """
    counts = Counter(values.values())
    if len(counts) < 2:
        return Comparison()
    ranked = sorted(counts, key=lambda value: (-counts[value], value))
    common, label = ranked[0], LABELS[fact]
    if fact in may_differ:
        return Comparison(note=f"{label} differs: {_spread(ranked, counts, values)}; allowed: {may_differ[fact]}")
    step = f"{REPAIRS[fact]}, or list {fact.value} under validation.may_differ with the reason"
    if counts[common] * 2 > len(values):
        expected = f"{common} as on {counts[common]} of {len(values)} nodes"
        odd = {value: fail(FailureClass.COMPARISON, f"{label} is {value}", expected, step) for value in ranked[1:]}
    else:
        spread = _spread(ranked, counts, values)
        expected, step = f"the same {label} on all nodes", f"decide which is right: none has a majority; then {step}"
        odd = {value: fail(FailureClass.COMPARISON, f"{label} is {value}, with {spread}", expected, step) for value in ranked}
    return Comparison({node: odd[value] for node, value in values.items() if value in odd})


def missing(fact: FleetFact, source: str, next_step: str) -> Finding:
    """Return an inconclusive finding for a node that does not show a fact. `source` names what should have shown it."""
    expected = f"the {LABELS[fact]} of this node, to compare it with the others"
    return unknown(FailureClass.HEALTH, f"no {source}", expected, next_step)


def _spread(ranked: list[str], counts: Mapping[str, int], values: Mapping[str, str]) -> str:
    named: dict[str, list[str]] = {value: [] for value in ranked[:VALUES]}
    for node, value in values.items():
        if value in named:
            named[value].append(node)
    parts = [f"{value} on {counts[value]} ({some(nodes, NAMED)})" for value, nodes in named.items()]
    return ", ".join(parts) + (f" and {len(ranked) - VALUES} further values" if len(ranked) > VALUES else "")
