"""Readers of an acceptance: texts as Slurm 22.05 printed them in `tests/slurm`, and recordings of newer releases."""

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.contract.verdict import FailureClass
from steps.slurmacceptance import slurm_output
from steps.slurmacceptance.pair_rounds import matchings
from steps.stages.slurm import reader
from steps.stages.slurm_acceptance.contract import ControllerAnswer

SAMPLES = Path(os.environ.get("BRINGUP_TEST_DATA", Path(__file__).parents[4] / "shared")) / "samples"

CONFIG = """\
Configuration data as of 2026-11-29T15:59:03
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = lab
Epilog                  = /etc/slurm/epilog
HASH_VAL                = Different Ours=0x2c85ec25 Slurmctld=0x7998ca98
Prolog                  = (null)
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 22.05.8
SlurmctldLogFile        = /var/log/slurm/slurmctld.log
TopologyPlugin          = topology/tree
"""
NODE = (
    "NodeName=n003 Arch=x86_64 CoresPerSocket=2  CPUAlloc=0 Gres=gpu:lab:2 NodeAddr=10.77.0.4 NodeHostName=n003 Version=22.05.8"
    " RealMemory=500 State=IDLE+DRAIN+INVALID_REG ThreadsPerCore=1"
    " Reason=gres/gpu count reported lower than configured (1 < 2) [slurm@2026-11-29T16:03:43]"
)
REFUSED = """\
[2026-11-29T16:04:21.425] error: Munge decode failed: {kind} credential
[2026-11-29T16:04:21.425] auth/munge: _print_cred: ENCODED: Sun Nov 29 14:04:21 2026
[2026-11-29T16:04:21.425] auth/munge: _print_cred: DECODED: Sun Nov 29 16:04:21 2026
[2026-11-29T16:04:21.425] error: slurm_unpack_received_msg: [[n003]:39952] auth_g_verify: MESSAGE_NODE_REGISTRATION_STATUS has \
authentication error: Unspecified error
"""


def test_settings_say_what_differs_and_what_is_configured() -> None:
    settings = slurm_output.settings(CONFIG)
    assert (settings.cluster, settings.version, settings.matches) == ("lab", "22.05.8", False)
    assert slurm_output.settings(CONFIG.replace("Different Ours", "Match\nX = ")).matches is True
    assert slurm_output.settings("nothing").matches is None
    assert slurm_output.scripts(CONFIG) == ("", "/etc/slurm/epilog")
    assert slurm_output.scripts("Prolog[0] = /a\nEpilog[0] = /b") == ("/a", "/b")
    assert slurm_output.scripts("nothing") == (None, None)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("Slurmctld(primary) at n000 is UP", [("primary", "n000", True)]),
        ("Slurmctld(primary) at a is DOWN\nSlurmctld(backup1) at b is UP", [("primary", "a", False), ("backup1", "b", True)]),
        ("slurm_load_ctl_conf error: Unable to contact slurm controller", []),
    ],
)
def test_ping_names_each_controller(text: str, answers: list[tuple[str, str, bool]]) -> None:
    assert slurm_output.controllers(text) == tuple(ControllerAnswer(role=role, host=host, up=up) for role, host, up in answers)


def test_a_node_has_its_states_reason_and_gres() -> None:
    (node,) = slurm_output.nodes(NODE)
    assert (node.name, node.states, node.gpus, node.gpu_type) == ("n003", ("idle", "drain", "invalid_reg"), 2, "lab")
    assert node.reason == "gres/gpu count reported lower than configured (1 < 2)"


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("Invalid", "munge key mismatch: slurmctld refuses its credentials"),
        ("Expired", "its clock differs by 7200 s: credential expired"),
        ("Rewound", "its clock differs by 7200 s: credential rewound"),
    ],
)
def test_the_log_of_slurmctld_tells_why_a_node_is_silent(kind: str, cause: str) -> None:
    log = REFUSED.format(kind=kind)
    assert slurm_output.causes(log)["n003"].cause == cause
    assert slurm_output.causes(log)["n003"].failure_class is FailureClass.PERMISSION
    assert slurm_output.causes(f"{log}[2026-11-29T16:05:00] Node n003 now responding\n") == {}


def test_topologies_of_slurmctld_and_of_the_file_compare() -> None:
    shown = "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[001-002]\nSwitchName=spine Level=1 Nodes=n[001-002] Switches=leaf1\n"
    assert slurm_output.leaves(shown) == slurm_output.leaves("SwitchName=leaf1 Nodes=n001,n002\nSwitchName=spine Switches=leaf1\n")


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        ("# Size Bandwidth (MB/s)\n1 0.5\n1048576 128.40\n", 0.1284),
        ("# forward\n1048576 900.0\n# backward\n1048576 40.0\n", 0.04),
        ("1 5.0\n4194304 23000.5\n1 4.0\n4194304 21000.0\n", 21.0),
        ("no table\n", None),
    ],
)
def test_the_slower_direction_counts_at_the_largest_size(text: str, figure: float | None) -> None:
    assert slurm_output.slowest_direction(text) == (None if figure is None else pytest.approx(figure))


def test_recorded_tables_of_osu_are_read() -> None:
    good = (SAMPLES / "mpi/osu_bw_2node_slingshot_good.txt").read_text()
    assert slurm_output.slowest_direction(good) == pytest.approx(23.98218)
    assert slurm_output.slowest_direction((SAMPLES / "mpi/osu_bw_2node_no_cxi_slow.txt").read_text()) == pytest.approx(3.12142)
    assert slurm_output.slowest_direction(good.replace("23982.18              Pass", "23982.18              Fail")) is None
    assert slurm_output.slowest_direction(good.replace("MB/s", "us")) is None


def test_nodes_of_newer_releases_are_read_from_recordings_alone() -> None:
    """Debian 12 has Slurm 22.05, so 25.11 meets our readers only as the recorded JSON of its slurmrestd."""
    nodes, errors = reader.read_rest_nodes((SAMPLES / "slurm/rest_nodes_list_25.11.json").read_text())
    assert errors == ()
    assert {node.name: node.gpus for node in nodes if node.gpus} == {f"gpu{number}": 4 for number in range(1, 5)}


def test_an_answer_without_a_word_stays_unknown() -> None:
    text = "bringup-node n1 host n1\nbringup-node n1 clock 1000\nnoise\nbringup-node n1 hash Match\nbringup-node n2 host n2\n"
    first, second = slurm_output.answers(text, 1000.4)
    assert (first.matches, first.skew, first.gpus) == (True, pytest.approx(-0.4), None)
    assert (second.matches, second.skew) == (None, None)


@given(st.text(max_size=400))
def test_no_text_breaks_a_reader(text: str) -> None:
    for read in (slurm_output.settings, slurm_output.controllers, slurm_output.nodes, slurm_output.partitions, slurm_output.leaves):
        read(text)
    slurm_output.causes(text)
    slurm_output.answers(text, 0.0)
    slurm_output.failed_nodes(text)
    slurm_output.tool_error("srun", 1, text)
    figure = slurm_output.slowest_direction(text)
    assert figure is None or figure >= 0


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8])
def test_matchings_use_every_pair_once(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    rows = matchings(names)
    assert all(len({node for pair in row for node in pair}) == 2 * len(row) for row in rows)
    used = [frozenset(pair) for row in rows for pair in row]
    assert sorted(map(sorted, used)) == sorted(map(sorted, itertools.combinations(names, 2)))


BLOCKS = "BlockName=b1 BlockIndex=0 Nodes=gpu[01-02] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=gpu03 BlockSize=2\n"
TREE = """\
- topology: tree
  cluster_default: {tree}
  tree:
    switches:
    - switch: top
      children: s1
    - switch: s1
      nodes: n[1-2]
"""
FLAT = "- topology: flat\n  cluster_default: {flat}\n  flat: true\n"
BLOCK_YAML = "- topology: b\n  block:\n    block_sizes: [2]\n    blocks:\n    - block: b1\n      nodes: gpu[01-02]\n"


def test_blocks_and_leaf_switches_are_read_from_either_file() -> None:
    assert slurm_output.leaves(BLOCKS) == {"b1": ("gpu01", "gpu02"), "b2": ("gpu03",)}
    assert slurm_output.leaves("SwitchName=top Switches=s1\nSwitchName=s1 Nodes=n[1-2]\n") == {"s1": ("n1", "n2")}
    both = TREE.format(tree="false") + FLAT.format(flat="true")
    assert slurm_output.leaves_of_yaml(TREE.format(tree="true") + FLAT.format(flat="false")) == {"s1": ("n1", "n2")}
    assert (slurm_output.leaves_of_yaml(both), slurm_output.leaves_of_yaml(BLOCK_YAML)) == ({}, {"b1": ("gpu01", "gpu02")})
    assert [slurm_output.leaves_of_yaml(text) for text in ("{", "1", "- - x", "- tree: {switches: [1]}")] == [{}, {}, {}, {}]
