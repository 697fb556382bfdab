"""Report → JUnit XML: a suite a stage, a case a gate and a case a judged node, for CI servers."""

from xml.etree import ElementTree

from steps.report import model

_SHOWN = {"fail": "failure", "inconclusive": "failure"}


def junit(report: model.Report) -> bytes:
    """The XML document. A gate that did not run is `skipped`; an inconclusive one is a failure, because it is no pass."""
    root = ElementTree.Element("testsuites", name=f"bringup {report.cluster}")
    for stage in report.stages:
        cases = [_case(gate.gate, gate.status, gate.reason) for gate in stage.gates]
        cases += [
            _case(f"{gate.gate} {node.name}", node.gates[gate.gate], node.reasons.get(gate.gate, ""))
            for gate in stage.gates
            for node in report.nodes
            if gate.gate in node.gates
        ]
        cases.append(_case(f"{stage.id}/judge", stage.status, stage.reason))
        failures = sum(case.find("failure") is not None for case in cases)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=stage.id,
            tests=str(len(cases)),
            failures=str(failures),
            skipped=str(sum(case.find("skipped") is not None for case in cases)),
            time=f"{max(0.0, stage.finished - stage.started):.3f}",
        )
        suite.extend(cases)
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root)


def _case(name: str, status: str, reason: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=name.split("/", 1)[0], name=name)
    if status in _SHOWN:
        ElementTree.SubElement(case, _SHOWN[status], message=_xml_safe(reason), type=status)
    elif status != "pass":
        ElementTree.SubElement(case, "skipped", message=_xml_safe(reason or status))
    return case


def _xml_safe(text: str) -> str:
    """Text without the control characters that XML 1.0 cannot hold."""
    return "".join(letter if letter in "\t\n\r" or letter >= " " else "\N{REPLACEMENT CHARACTER}" for letter in text)
