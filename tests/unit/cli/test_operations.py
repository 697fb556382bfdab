"""The commands about a cluster that stands, rehearsed on a simulated one; and what they refuse before anything begins."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.pseudo_terminal import in_a_terminal
from tests.unit.rehearsal.small import SMALL


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL | {"stages": ["os_prep", "rke2"]}))
    return path


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (["add-node", "--hosts", "gpu3"], ["nodes pass 1/1", "agents pass 1/1", "nodes pass 4/4", "operation add-node gpu3"]),
        (["replace-node", "--hosts", "gpu2"], ["nodes pass 1/1", "agents pass 1/1", "nodes pass 4/4"]),
        (
            ["upgrade"],
            ["agents pass 3/3", "Ready with v1.35.7+rke2r1", "operation upgrade: RKE2 v1.35.6+rke2r1 → v1.35.7+rke2r1 on 4 hosts"],
        ),
        (
            ["rollback"],
            [
                "agents pass 3/3",
                "Ready with v1.35.7+rke2r1",
                "operation rollback: RKE2 v1.35.7+rke2r1 again on 4 hosts; etcd set back to /",
            ],
        ),
        (["reset", "--hosts", "gpu[1-2]"], ["agents pass 2/2", "operation reset gpu[1-2]"]),
        (["reset"], ["agents pass 3/3, servers pass 1/1"]),
    ],
    ids=lambda value: "-".join(value) if "reset" in value or "upgrade" in value else str(value[0]),
)
def test_an_operation_passes_on_a_cluster_that_stands(machine: Any, spec: Path, operation: list[str], said: list[str]) -> None:
    done = machine.call("rehearse", spec, "--operation", *operation)

    assert done.code == 0, done.text
    assert not [sentence for sentence in said if sentence not in done.out], done.out
    assert not list(machine.home.rglob("prepared")), "what it stands on leaves no store of its own"


def test_what_a_reset_leaves_is_told_by_host_and_kind(machine: Any, spec: Path) -> None:
    done = machine.call("rehearse", spec, "--operation", "reset", "--fault", "shim_hangs")

    assert done.code == 65
    assert "reset: fail: 2 of 3 agents pass, 3 needed; gpu1: processes left: 4711 containerd-shim-runc-v2" in done.out


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (["add-node", "--hosts", "gpu3"], ["add-node gpu3", "(reboots)", "changes RKE2 v1.35.7+rke2r1 as agent on gpu3"]),
        (["replace-node", "--hosts", "gpu3"], ["once the cluster forgot the old machine's Node"]),
        (["upgrade"], ["(upgrade, 4 hosts", "after an etcd snapshot: one at a time", "10 at a time, each drained before"]),
        (["rollback"], ["(rollback, 4 hosts", "all stopped at once, with etcd set back to its snapshot", "`bringup upgrade SPEC`"]),
        (["reset", "--hosts", "gpu1"], ["(reset gpu1, 4 hosts", "drained, its Node deleted; RKE2, its containers"]),
    ],
    ids=lambda value: str(value[0]),
)
def test_a_plan_says_what_an_operation_does_and_to_whom(machine: Any, spec: Path, operation: list[str], said: list[str]) -> None:
    done = machine.call("plan", spec, "-o", "tree", "--operation", *operation)

    assert done.code == 0, done.text
    assert not [sentence for sentence in said if sentence not in done.out], done.out
    assert f"operation {' '.join(operation).replace('--hosts ', '')}" in machine.call("plan", spec, "--operation", *operation).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["rehearse", "--operation", "repair"],
            "--operation 'repair' is unknown; use add-node, replace-node, upgrade, rollback, reset",
        ),
        (["rehearse", "--hosts", "gpu1"], "--hosts and --from belong to --operation NAME"),
        (["rehearse", "--operation", "add-node"], "--operation add-node needs --hosts RANGE"),
        (["rehearse", "--operation", "upgrade", "--hosts", "gpu1"], "all machines of a cluster run one release"),
        (["rehearse", "--operation", "upgrade", "--from", "1.35.6"], "--from 1.35.6: this is not a release of RKE2"),
        (["rehearse", "--operation", "upgrade", "--from", "v1.33.5+rke2r1"], "would skip a minor"),
        (["rehearse", "--operation", "upgrade", "--from", "v1.35.7+rke2r1"], "it is not older"),
        (
            ["rehearse", "--operation", "add-node", "--hosts", "sv1"],
            "without the 1 of 1 servers to be added, the cluster would have 0",
        ),
        (["rehearse", "--operation", "rollback", "--from", "v1.35.7+rke2r1"], "it is not newer"),
        (["rehearse", "--operation", "rollback", "--from", "v1.37.1+rke2r1"], "would skip a minor"),
        (["rehearse", "--operation", "rollback", "--from", "1.36"], "--from 1.36: this is not a release of RKE2"),
        (["rehearse", "--operation", "rollback", "--hosts", "gpu1"], "all machines of a cluster run one release"),
        (["rollback"], "stops all servers of cluster h200-16 and sets its etcd back to before the last upgrade"),
        (["reset", "--yes", "--hosts", "sv1"], "reset of sv1 ends the cluster, but would leave RKE2 on its agents"),
        (["reset", "--yes", "--hosts", "zz"], "zz is not among the hosts of h200-16: they are gpu[1-3],sv1"),
        (["plan", "--operation", "upgrade", "--only", "os_prep"], "upgrade is stage rke2 alone: leave out --only and --until"),
        (["plan", "--operation", "repair"], "--operation 'repair' is unknown; use add-node, replace-node, upgrade, rollback"),
        (["reset"], "its pods and their data off all 4 hosts of cluster h200-16, and nobody is here to ask: add --yes"),
        (["reset", "--hosts", "gpu1"], "off hosts gpu1 of cluster h200-16, and nobody is here to ask"),
        (["reset", "--hosts", "gpu9"], "gpu9 is not among the hosts of h200-16"),
        (["reset", "--yes", "--hosts", "gpu[1-"], "--hosts 'gpu[1-'"),
        (["add-node", "--hosts", "gpu9"], "gpu9 is not among the hosts of h200-16"),
        (["add-node", "--hosts", "gpu3", "--no-wait"], "--no-wait is for --engine argo"),
    ],
)
def test_what_cannot_be_meant_is_refused(machine: Any, spec: Path, arguments: list[str], said: str) -> None:
    command, *options = arguments
    done = machine.call(command, spec, *options)

    assert done.code == 64, done.text
    assert said in done.err
    assert machine.runs == []


@pytest.mark.parametrize("operation", ["reset", "rollback"])
def test_another_name_than_the_clusters_changes_nothing_and_says_so(machine: Any, command: str, spec: Path, operation: str) -> None:
    question = "type the name of the cluster to go on"
    line = [command, operation, str(spec)]
    code, said = in_a_terminal(machine.environment({"TERM": "dumb"}), line, answer="h200-61", question=question)

    assert (code, "error: that is not h200-16, the name of the cluster: nothing was changed" in said) == (64, True), said
    assert machine.runs == []
