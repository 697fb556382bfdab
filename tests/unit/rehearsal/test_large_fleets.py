"""Rehearsals of large fleets without delays: RKE2 with each network plugin on 300 nodes, and all stages on up to 1,000."""

from pathlib import Path

import pytest

from tests.unit.rehearsal.whole_rehearsals import refusals
from workflows import examples
from workflows.spec import ClusterSpec, load


def large(nodes: int, cni: str) -> ClusterSpec:
    """Return the default example with another number of GPU nodes, the addresses that they need, and a network plugin."""
    text = examples.path("h200-16").read_text()
    changes = {
        "gpu[001-016]": f"gpu[0001-{nodes:04d}]",
        "15/16": "95%",
        '{pattern: "10.10.1.{1}"}': "{start: 10.64.0.1}",
        "  cni: canal": f"  cni: {cni}\n  cluster_cidr: 100.64.0.0/10",
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return load(text)


@pytest.mark.parametrize("cni", ["canal", "calico", "cilium", "flannel", "[multus, canal]"])
def test_rke2_comes_up_on_300_nodes_with_each_network_plugin(cni: str, tmp_path: Path) -> None:
    assert not refusals(large(300, cni), tmp_path, until="rke2")


@pytest.mark.long
@pytest.mark.parametrize("nodes", [300, 1000])
def test_all_stages_pass_on_a_large_fleet(nodes: int, tmp_path: Path) -> None:
    assert not refusals(large(nodes, "canal"), tmp_path)
