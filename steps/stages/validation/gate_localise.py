"""Judges a localisation: names the node, rail, pair or path at fault with its evidence, or that only large groups fail."""

from collections.abc import Iterable

from steps.contract.measurements import Measurement
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, NodeVerdict, Status
from steps.localise.contract import FaultDiagnosis, Suspect
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.validation.contract import LocaliseExpectation, LocaliseObservation

QUANTITY = "ib_write_bw between pairs of nodes, slowest direction"
_STEPS = {
    "node": "compare its PCIe links (lspci, nvidia-smi -q), HCA firmware and cables with those of a good node; after the repair: "
    "bringup accept --nodes NODE",
    "rail": "look at this port: cable, transceiver, ibdiagnet counters, PCIe width of the HCA",
    "pair": "look at the routes between the two: adaptive routing, a collision of flows, GIDs",
    "path": "look at the links between these leaf switches: ibdiagnet, symbol errors, trunks that are down",
    "scale": "look for congestion: routing engine, adaptive routing, oversubscription, SHARP and MTU of the switches",
}


def sentence(suspect: Suspect, seen: LocaliseObservation) -> str:
    """Return a suspect in words, with the measurement that shows it and the bound of the error."""
    error = f" (error below {suspect.error:.1e})" if suspect.error else ""
    match suspect.kind:
        case "node":
            return f"node {suspect.nodes[0]}: {_figures(seen, suspect.nodes[0])}{error}"
        case "rail":
            rail = suspect.rail or 0
            return f"rail {rail} of {suspect.nodes[0]}: {_figures(seen, suspect.nodes[0], rail)}{error}"
        case "pair":
            return f"pair {' and '.join(suspect.nodes)}: {_shown(suspect, seen)}each is good with others{error}"
        case "path":
            leaves = " and ".join(suspect.leaves)
            return f"path between leaves {leaves}: {_shown(suspect, seen)}nodes on both are good with others{error}"
        case "scale":
            passes = f", {suspect.passes_nodes} nodes pass" if suspect.passes_nodes else ""
            return f"groups of {suspect.at_least_nodes} nodes or more fail{passes}, and no part alone{error}"


def _shown(suspect: Suspect, seen: LocaliseObservation) -> str:
    """Return the least bandwidth of the tests that show a suspect, with a comma after it."""
    figures = [seen.figures[test] for test in suspect.evidence if test in seen.figures]
    return f"{min(figures):g} Gbit/s, " if figures else ""


def _figures(seen: LocaliseObservation, node: str, rail: int | None = None) -> str:
    row = seen.rails.get(node, ())
    figures = [row[rail]] if rail is not None and rail < len(row) else [*row]
    known = [figure for figure in figures if figure is not None]
    if not known:
        return "its tests fail"
    low = min(known)
    rails = [str(number) for number, figure in enumerate(row) if figure is not None and figure <= low * 1.05]
    where = f" on rail {', '.join(rails)}" if rail is None and len(rails) < len(row) else ""
    return f"{low:g} Gbit/s{where}"


def problem(seen: LocaliseObservation, want: LocaliseExpectation) -> Finding | None:
    """Return the finding about what is no node's own (pair, path, scale) or is not decided; None if only nodes are at fault."""
    diagnosis = seen.diagnosis
    if diagnosis is None:
        return no_diagnosis(seen)
    edges = [suspect for suspect in diagnosis.suspects if suspect.kind in ("pair", "path", "scale")]
    if edges:
        named = "; ".join([*(sentence(suspect, seen) for suspect in diagnosis.suspects), *filter(None, [diagnosis.reason])])
        return fail(FailureClass.PERFORMANCE, named, _expected(want), _STEPS[edges[0].kind], final=True)
    if not diagnosis.finished or not diagnosis.tests:
        why = "; ".join(filter(None, (diagnosis.reason, seen.problem))) or "it was cut off"
        state = f"not finished after {count(diagnosis.rounds, 'round')} and {count(diagnosis.tests, 'test')}: {why}"
        return unknown(FailureClass.RUNTIME, state, "a finished localisation", "see why the pods of the tests gave no result")
    if diagnosis.reason and not diagnosis.undecided:
        step = "run it again with more nodes, so that each node has other partners"
        return unknown(FailureClass.PERFORMANCE, diagnosis.reason, "every part named or cleared", step)
    return None


def no_diagnosis(seen: LocaliseObservation) -> Finding:
    """Return the finding that no round of tests was run."""
    return unknown(FailureClass.RUNTIME, f"no round was run {seen.problem}".rstrip(), "a diagnosis", "read the log of this task")


def rows(seen: LocaliseObservation, want: LocaliseExpectation, diagnosis: FaultDiagnosis) -> Iterable[NodeVerdict]:
    """Yield the verdict on each node: named, cleared, or undecided."""
    suspects = {node: suspect for suspect in diagnosis.suspects if suspect.kind in ("node", "rail") for node in suspect.nodes}
    cleared = set(diagnosis.cleared)
    for node in want.nodes:
        if node in suspects:
            suspect = suspects[node]
            finding = fail(
                FailureClass.HARDWARE if suspect.kind == "rail" else FailureClass.PERFORMANCE,
                sentence(suspect, seen),
                _expected(want),
                _STEPS[suspect.kind],
                final=True,
            )
            yield finding.of_node(node)
        elif node in cleared and not _unmeasured(seen, want, node):
            yield NodeVerdict(node=node, status=Status.PASS, seen=_figures(seen, node))
        else:
            why = seen.problem or (node in cleared and _unmeasured(seen, want, node)) or diagnosis.reason
            why = why or "its tests gave too few results"
            yield unknown(FailureClass.RUNTIME, why, "a result", "see why the pods of its tests gave no result").of_node(node)


def _unmeasured(seen: LocaliseObservation, want: LocaliseExpectation, node: str) -> str:
    """Return that rails of a node were not measured, in words; empty if all were."""
    row = seen.rails.get(node, ())
    absent = [str(rail) for rail in range(want.rails) if rail >= len(row) or row[rail] is None]
    return f"rail {', '.join(absent)} was not measured" if absent else ""


def measurement(seen: LocaliseObservation, want: LocaliseExpectation) -> Measurement:
    """Return the bandwidth of each rail of each node, for the report."""
    columns = tuple(f"rail {rail}" for rail in range(want.rails))
    values = {node: row for node, row in seen.rails.items() if node in want.nodes and len(row) == want.rails}
    return Measurement(quantity=QUANTITY, unit="Gbit/s", floor=want.floor or None, columns=columns, values=values)


def good(diagnosis: FaultDiagnosis, nodes: int) -> str:
    """Return the summary of a localisation that names nothing."""
    work = f"{count(diagnosis.tests, 'test')} in {count(diagnosis.rounds, 'round')}"
    return f"{count(nodes, 'node')} cleared by {work}, a fault is overlooked with a probability below {diagnosis.missed:.1e}"


def _expected(want: LocaliseExpectation) -> str:
    return f"at least {want.floor:g} Gbit/s on every rail in both directions"
