"""Renders a report as JUnit XML for CI servers: a test suite for each stage, a test case for each gate and judged node."""

from xml.etree import ElementTree

from steps.contract import run_records
from steps.report import model

_BAD = ("fail", "inconclusive")
_UNDECIDED = "skipped"


def junit(report: model.Report) -> bytes:
    """Return the report as a JUnit XML document. A gate that did not run is `skipped`; an inconclusive one is a failure.

    An accepted run has no failure: gates that a quorum passed are passes, nodes set aside are `skipped` with the reason. A run that
    could not be opened has one failure, since none of its stages began. An unfinished run that has not passed has an error, so that
    no CI server takes pending stages for skipped ones.
    """
    root = ElementTree.Element("testsuites", name=f"bringup {report.cluster}")
    if report.opening:
        case = _case(f"{run_records.STAGE}/{report.opening.id}", report.opening.status, report.opening.reason)
        failed = str(int(case.find("failure") is not None))
        suite = ElementTree.SubElement(root, "testsuite", name=run_records.STAGE, tests="1", failures=failed, skipped="0")
        suite.append(case)
    for stage in report.stages:
        cases = [_of_gate(gate) for gate in stage.gates]
        cases += [_of_node(gate, node) for gate in stage.gates for node in report.nodes if gate.gate in node.gates]
        cases.append(_case(f"{stage.id}/judge", stage.status, stage.reason))
        failures = sum(case.find("failure") is not None for case in cases)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=stage.id,
            tests=str(len(cases)),
            failures=str(failures),
            skipped=str(sum(case.find(_UNDECIDED) is not None for case in cases)),
            time=f"{max(0.0, stage.finished - stage.started):.3f}",
        )
        suite.extend(cases)
    if report.unsealed:
        suite = ElementTree.SubElement(root, "testsuite", name="seal", tests="1", failures="1", skipped="0")
        suite.append(_case("seal/files", report.status, "; ".join(report.unsealed)))
    if report.running and report.status != "pass":
        suite = ElementTree.SubElement(root, "testsuite", name="run", tests="1", failures="0", errors="1", skipped="0")
        case = ElementTree.SubElement(suite, "testcase", classname="run", name=report.run)
        ElementTree.SubElement(case, "error", message=_xml_safe(f"not finished: {report.sentence}"), type="unfinished")
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root)


def _of_gate(gate: model.GateReport) -> ElementTree.Element:
    if not gate.quorum:
        return _case(gate.gate, gate.status, gate.reason)
    case = _case(gate.gate, "pass", "")
    ElementTree.SubElement(case, "system-out").text = _xml_safe(f"passed by quorum: {gate.reason}")
    return case


def _of_node(gate: model.GateReport, node: model.HostReport) -> ElementTree.Element:
    """Return the test case of a node under a gate. If its stage passed without it by quorum, the node is skipped, not failed."""
    status, reason = node.gates[gate.gate], node.reasons.get(gate.gate, "")
    # the platform was accepted without this node, so CI must not fail on it
    if gate.quorum and status in _BAD:
        return _case(f"{gate.gate} {node.name}", _UNDECIDED, f"set aside by quorum: {reason}")
    return _case(f"{gate.gate} {node.name}", status, reason)


def _case(name: str, status: str, reason: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=name.split("/", 1)[0], name=name)
    if status in _BAD:
        ElementTree.SubElement(case, "failure", message=_xml_safe(reason), type=status)
    elif status != "pass":
        ElementTree.SubElement(case, _UNDECIDED, message=_xml_safe(reason or status))
    return case


def _xml_safe(text: str) -> str:
    """Return the text without control characters that XML 1.0 cannot hold."""
    return "".join(letter if letter in "\t\n\r" or letter >= " " else "\N{REPLACEMENT CHARACTER}" for letter in text)
