"""No recipe has networkd ask for addresses on links that a running node makes: each pod's veth is of type ether too."""

from configparser import ConfigParser
from pathlib import Path

import pytest

from workflows.nodeimage import recipe_chain, recipe_files

ROOT = Path(__file__).parents[4]
UBUNTU = "tests/boot/pipeline/ubuntu.yaml"
VALUES = {"site": {"time_server": "ntp.example.org", "admin_key": "ssh-ed25519 AAAA ada"}}


@pytest.mark.parametrize("name", [*recipe_files.shipped_names(), UBUNTU])
def test_addresses_are_asked_for_on_cards_alone(name: str) -> None:
    layers = [layer for _, layer in recipe_chain.read(name, ROOT, VALUES.get(name, {})).layers]
    texts = [file.content for layer in layers for file in layer.files if file.path.endswith(".network")]
    assert texts, "every recipe stands on one that brings up the network"
    for text in texts:
        parsed = ConfigParser(delimiters="=")
        parsed.read_string(text or "")
        assert (parsed["Match"]["Type"], parsed["Match"]["Kind"]) == ("ether", "!*")
