"""Judges what the check pod of each node measured inside it: host facts, DCGM's diagnostic, and the speed of each GPU."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from steps.contract.measurements import Measurement, Versions
from steps.contract.node_tests.node_health import HostWant, NodeFacts
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, NodeVerdict, Status
from steps.stages.shared.finding import Finding, fail, node_verdict
from steps.stages.validation import fleet_baseline, gate_dcgm, gate_host, gate_speed
from steps.stages.validation.contract import DcgmExpectation, DcgmObservation, DcgmPod

HOT = 10.0
"""Degrees above the fleet's median at which a note names the node's hottest GPU."""
_DIAGNOSED = "check that nv-hostengine starts there"


class NodeJudge(NamedTuple):
    """The expectation with all that takes the whole fleet: findings on nodes that differ or are slow, measurements, and notes."""

    want: DcgmExpectation
    alike: Mapping[str, Finding]
    slow: Mapping[str, Finding]
    measured: tuple[Measurement, ...]
    notes: tuple[str, ...]
    speeds: Mapping[str, str]
    in_use: Versions

    def node(self, name: str, check: DcgmPod) -> NodeVerdict:
        """Return the verdict on one node: what its GPUs report of themselves first, then DCGM, the fleet, and the speed."""
        want, gpus = self.want, self.want.others.get(name, self.want.gpus)
        facts = gate_host.problem(check.facts, want.host, gpus) if want.host else None
        finding = _with(facts, _diagnostic(check, gpus, want.level)) or self.alike.get(name)
        if finding is None and want.speed is not None:
            finding = _unmeasured(check) or self.slow.get(name)
        return node_verdict(
            name, finding and msgspec.structs.replace(finding, status=Status.FAIL), _good(check, self.speeds.get(name, ""))
        )


def prepare(seen: DcgmObservation, want: DcgmExpectation) -> NodeJudge:
    """Return the judge of a fleet, which compares the nodes that reported."""
    reported = {check.pod.node: check for check in seen.pods if check.pod.node and check.pod.report}
    facts = {node: check.facts for node, check in reported.items() if check.facts is not None}
    alike = gate_host.compare(facts, want.may_differ) if want.host else gate_host.FleetComparison()
    notes = _unread(facts, want.host) if want.host else []
    notes += _hot({node: fact.temperature for node, fact in facts.items() if fact.temperature is not None})
    notes += fleet_baseline.note({node: fact.clock for node, fact in facts.items() if fact.clock is not None}, "SM clock", "MHz")
    speeds = {node: check.speed for node, check in reported.items() if check.speed is not None}
    counts = {node: want.others.get(node, want.gpus) for node in speeds}
    joined = want.host is not None and want.host.links > 0
    speed = gate_speed.judge(speeds, want.speed, counts, joined=joined) if want.speed else gate_speed.SpeedVerdict({}, (), (), {})
    return NodeJudge(
        want, alike.findings, speed.findings, speed.measured, (*alike.notes, *notes, *speed.notes), speed.summaries, alike.in_use
    )


def _unread(facts: Mapping[str, NodeFacts], want: HostWant) -> list[str]:
    """Return notes on what a pod may be unable to read, which is then not judged."""
    logs = sum(fact.xids is None for fact in facts.values())
    notes = [f"kernel log not readable on {count(logs, 'node')}: Xids there are not judged"] if logs else []
    blind = sum(not fact.adapters for fact in facts.values()) if want.adapters else 0
    seen = f"no RDMA device visible in the pod of {count(blind, 'node')}: NIC firmware there is not compared"
    return [*notes, *([seen] if blind else [])]


def _with(finding: Finding | None, other: Finding | None) -> Finding | None:
    """Return the first finding with what the second one saw, or the one that there is."""
    if finding is None or other is None:
        return finding or other
    return msgspec.structs.replace(finding, seen=f"{finding.seen}; {other.seen}")


def _diagnostic(check: DcgmPod, gpus: int, level: int) -> Finding | None:
    if check.run is None and check.error:
        return fail(FailureClass.RUNTIME, f"dcgmi diag gave no result: {check.error}", "a result", _DIAGNOSED)
    return gate_dcgm.problem(check.run, gpus, level) or gate_dcgm.ended(check.code)


def _unmeasured(check: DcgmPod) -> Finding | None:
    if check.speed is not None:
        return None
    return fail(FailureClass.RUNTIME, "the report has no figures of GPUs", "GEMM and nvbandwidth", "read the log of the check pod")


def _good(check: DcgmPod, speed: str) -> str:
    run = f"DCGM {check.run.version}: {check.run.count('pass')} results passed" if check.run else ""
    return f"{run}, {speed}" if run and speed else run or speed


def _hot(temperatures: Mapping[str, float]) -> list[str]:
    """Return a note on nodes whose hottest GPU is far above the fleet's median."""
    baseline = fleet_baseline.of_values(temperatures.values())
    if baseline is None:
        return []
    hot = {node: value for node, value in temperatures.items() if value > baseline.median + HOT}
    named = ", ".join(f"{node} {value:g}" for node, value in sorted(hot.items(), key=lambda row: -row[1])[:3])
    more = f" and {len(hot) - 3} more" if len(hot) > 3 else ""
    return [f"hotter than the other nodes: {named}{more}; the median is {baseline.median:g} °C"] if hot else []
