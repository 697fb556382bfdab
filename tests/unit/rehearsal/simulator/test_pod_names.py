"""Names of simulated pods: every node of a large fleet gets a pod of its own of each DaemonSet."""

import pytest

from workflows.rehearsal.simulator.controllers import simulated_pods


@pytest.mark.parametrize("workload", ["rke2-canal", "rke2-multus", "nvidia-driver-daemonset", "slurm"])
def test_pods_of_ten_thousand_nodes_have_ten_thousand_names(workload: str) -> None:
    nodes = [f"gpu{number:05d}" for number in range(1, 10_001)]
    assert len({simulated_pods.node_suffix(workload, node) for node in nodes}) == len(nodes)
