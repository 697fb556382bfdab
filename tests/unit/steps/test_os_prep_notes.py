"""Notes of the OS prep gate beside its verdict: a firewall of the site and its ports, what a boot undoes, a dead repository."""

import json
from pathlib import Path

import msgspec
import pytest

from steps.stages.os_prep import gate as os_prep
from steps.stages.os_prep.contract import NodesExpectation, NodesObservation

CASES = Path(__file__).parents[2] / "gates/os_prep"


@pytest.mark.parametrize(("name", "notes"), [("firewall_of_the_site", 1), ("prepared", 0), ("firewall_closed_again", 0)])
def test_a_firewall_that_nobody_changed_is_a_note(name: str, notes: int) -> None:
    case = json.loads((CASES / f"{name}.json").read_text())
    verdict = os_prep.nodes(msgspec.convert(case["seen"], NodesObservation), msgspec.convert(case["want"], NodesExpectation))
    said = [note for note in verdict.notes if "firewall" in note]
    assert len(said) == notes
    for note in said:
        assert note.startswith("1 node with a firewall that bringup does not change, first gpu002: nftables.service loads rules")
        assert "8472/udp" in note


def test_a_line_that_the_next_boot_undoes_is_a_note() -> None:
    case = json.loads((CASES / "prepared.json").read_text())
    why = "cloud-init writes it anew"
    case["seen"]["nodes"][0]["items"].append({"name": "hosts over a boot", "status": "ok", "want": "kept", "why": why})
    verdict = os_prep.nodes(msgspec.convert(case["seen"], NodesObservation), msgspec.convert(case["want"], NodesExpectation))
    name = case["seen"]["nodes"][0]["node"]
    assert verdict.is_pass
    assert f"1 node whose /etc/hosts does not last, first {name}: {why}" in verdict.notes


def test_a_repository_that_was_done_without_is_a_note_that_counts_nodes_and_no_packages() -> None:
    case = json.loads((CASES / "prepared.json").read_text())
    why = "its repositories cannot be reached: E: Failed to fetch http://dead.example/InRelease"
    for node in case["seen"]["nodes"][:2]:
        named = [
            {"name": f"package {name}", "status": "changed", "want": "present", "after": "1", "why": why} for name in ("a", "b")
        ]
        node["items"] += named
    verdict = os_prep.nodes(msgspec.convert(case["seen"], NodesObservation), msgspec.convert(case["want"], NodesExpectation))
    assert verdict.is_pass
    first = case["seen"]["nodes"][0]["node"]
    assert f"2 nodes with a package repository that does not serve, first {first}: {why}" in verdict.notes


def test_interfaces_that_pods_have_are_a_note() -> None:
    case = json.loads((CASES / "prepared.json").read_text())
    why = "left as they are: link fab0, MTU of fab0"
    case["seen"]["nodes"][1]["items"].append({"name": "interfaces of pods", "status": "ok", "why": why})
    verdict = os_prep.nodes(msgspec.convert(case["seen"], NodesObservation), msgspec.convert(case["want"], NodesExpectation))
    assert verdict.is_pass
    assert f"1 node with fabric interfaces in pods' networks, first {case['seen']['nodes'][1]['node']}: {why}" in verdict.notes


@pytest.mark.parametrize(("cgroup", "wanted", "notes"), [("v1", True, 1), ("v1", False, 0), ("v2", True, 0)])
def test_control_groups_with_which_no_kubelet_starts_are_a_note(cgroup: str, wanted: bool, notes: int) -> None:
    case = json.loads((CASES / "prepared.json").read_text())
    case["seen"]["nodes"][1]["facts"]["cgroup"] = cgroup
    case["want"]["cgroup_v2"] = wanted
    verdict = os_prep.nodes(msgspec.convert(case["seen"], NodesObservation), msgspec.convert(case["want"], NodesExpectation))
    said = [note for note in verdict.notes if "systemd.unified_cgroup_hierarchy=1" in note]
    assert len(said) == notes
    for note in said:
        assert note.startswith(f"1 node with version 1 of control groups, first {case['seen']['nodes'][1]['node']}: a kubelet of")


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("containerd_template_extends", "1 node with a containerd template, first gpu002: /var/lib/rancher"),
        ("dns_none_at_all", "1 node without a name server, first gpu002: no file of the machine names a server"),
        ("upgrade_waited_for", "1 node with other work at first, first gpu002: waited 42 s for it"),
    ],
)
def test_conditions_that_pass_with_a_remark_are_notes(name: str, note: str) -> None:
    case = json.loads((CASES / f"{name}.json").read_text())
    verdict = os_prep.nodes(msgspec.convert(case["seen"], NodesObservation), msgspec.convert(case["want"], NodesExpectation))
    assert [text for text in verdict.notes if text.startswith(note)], verdict.notes
