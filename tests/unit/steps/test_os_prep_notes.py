"""What the gate of OS prep says beside its verdict: that a firewall of the site's runs, with what it must let in."""

import json
from pathlib import Path

import msgspec
import pytest

from steps.contract.stages.os_prep import Expectation, Observation
from steps.gates import os_prep

CASES = Path(__file__).parents[2] / "gates/os_prep"


@pytest.mark.parametrize(("name", "notes"), [("firewall_of_the_site", 1), ("prepared", 0), ("firewall_closed_again", 0)])
def test_a_firewall_that_nobody_changed_is_a_note(name: str, notes: int) -> None:
    case = json.loads((CASES / f"{name}.json").read_text())
    verdict = os_prep.nodes(msgspec.convert(case["seen"], Observation), msgspec.convert(case["want"], Expectation))
    said = [note for note in verdict.notes if "firewall" in note]
    assert len(said) == notes
    for note in said:
        assert note.startswith("1 node with a firewall that bringup does not change, first gpu002: nftables.service loads rules")
        assert "8472/udp" in note
