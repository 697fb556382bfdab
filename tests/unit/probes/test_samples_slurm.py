"""Every recorded Slurm output is read to its states, Gres and causes, and judged as a person judged it."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.stages.shared import causes, reader_kubelet
from steps.stages.slurm import reader, reader_slurm_errors
from steps.stages.slurm.contract import SlurmNode
from steps.stages.slurm.gate_states import problem

DATA = Path(os.environ.get("BRINGUP_TEST_DATA", Path(__file__).parents[4] / "shared")) / "samples" / "slurm"
CASES: list[dict[str, Any]] = yaml.safe_load((DATA / "INDEX.yaml").read_text())["cases"] if DATA.is_dir() else []
BY_FILE = {case["file"]: case for case in CASES}
STATES = [name for name in BY_FILE if name.startswith(("rest_", "sinfo_", "scontrol_", "slurmd_C_")) and "zero_bytes" not in name]
AWAITING = yaml.safe_load((DATA / "INDEX.yaml").read_text()).get("cases_awaiting_a_reader", []) if DATA.is_dir() else []
"""Recorded failures of slurmd, sbatch and the kubelet, of which the first readers knew nothing."""
ERRORS = [name for name in BY_FILE if BY_FILE[name]["expected"]["verdict"] == "fail" and name not in STATES]

pytestmark = pytest.mark.skipif(not CASES, reason="recorded outputs are not here ($BRINGUP_TEST_DATA)")


def text_of(name: str) -> str:
    return (DATA / name).read_text(errors="replace")


def nodes_of(name: str) -> tuple[SlurmNode, ...]:
    text = text_of(name)
    if name.startswith("rest_"):
        return reader.read_rest_nodes(text)[0]
    if name.startswith("sinfo_"):
        return reader.with_reasons(reader.sinfo(text), reader.reasons(text))
    return reader.records(text)


@pytest.mark.parametrize("name", STATES)
def test_states_are_judged(name: str) -> None:
    expected, given = BY_FILE[name]["expected"], BY_FILE[name]["given"]
    nodes = nodes_of(name)
    assert len(nodes) == given.get("nodes", expected.get("nodes", len(nodes)))
    found = [problem(node, given.get("expected_gpus", 0), powered_down=given.get("powered_down_ok", False)) for node in nodes]
    bad = [finding for finding in found if finding]
    if expected["verdict"] == "fail":
        assert {finding.failure_class.value for finding in bad} == {expected["class"]}
    elif name.startswith("slurmd_C_"):
        assert all("no state" in finding.seen for finding in bad)
    else:
        assert bad == []


@pytest.mark.parametrize("name", [name for name in STATES if name.startswith("rest_")])
def test_rest(name: str) -> None:
    expected = BY_FILE[name]["expected"]
    nodes, errors = reader.read_rest_nodes(text_of(name))
    assert list(errors) == expected["errors"]
    states = [[state.upper() for state in node.states] for node in nodes]
    named = [[node.name, state] for node, state in zip(nodes, states, strict=True)]
    assert expected["states"] in (states, named)
    assert expected["reason"] == [node.reason for node in nodes][: len(expected["reason"])]
    assert expected["gres"] == [node.gres for node in nodes][: len(expected["gres"])]


def test_sinfo_counts() -> None:
    def bases(name: str) -> Counter[str]:
        return Counter(node.states[0] for node in nodes_of(name))

    assert bases("sinfo_1alloc_8idle.txt") == {"allocated": 1, "idle": 8}
    assert bases("sinfo_9dgx_idle.txt") == {"idle": 9}
    cloud = Counter(node.states for node in nodes_of("sinfo_cloud_idle_tilde.txt"))
    assert cloud == {("idle",): 4, ("idle", "powered_down"): 30}
    low = nodes_of("sinfo_drain_low_realmemory.txt")
    assert [node.name for node in low] == BY_FILE["sinfo_drain_low_realmemory.txt"]["expected"]["drain"]
    assert {node.reason for node in low} == {"Low RealMemory"}
    mixed = {node.name: node.states[0] for node in nodes_of("sinfo_down_and_unknown.txt")}
    assert mixed == {"c001": "down", "c002": "down", "c004": "unknown"}


def test_sinfo_of_a_large_cluster() -> None:
    counts = Counter("".join(node.states).replace("not_responding", "*") for node in nodes_of("sinfo_host_state_csv_large.txt"))
    assert counts == BY_FILE["sinfo_host_state_csv_large.txt"]["expected"]["counts"]


def test_records() -> None:
    drained = nodes_of("scontrol_node_gres_lower_than_configured.txt")[0]
    expected = BY_FILE["scontrol_node_gres_lower_than_configured.txt"]["expected"]
    assert "+".join(drained.states).upper() == expected["state"]
    assert drained.reason == expected["reason"]
    assert drained.gpus == expected["gres_configured"]
    for name in ("slurmd_C_l40s_with_gres.txt", "slurmd_C_no_gres.txt"):
        expected = BY_FILE[name]["expected"]
        node, known = nodes_of(name)[0], reader.fields(text_of(name))
        assert (node.gres or None) == expected["gres"]
        assert int(known["CPUs"]) == expected["cpus"]
        assert int(known["RealMemory"]) == expected.get("real_memory", int(known["RealMemory"]))
    lines = reader.records(text_of("slurm_conf_node_lines_gpu_and_mig.txt"))
    assert [node.gres for node in lines] == BY_FILE["slurm_conf_node_lines_gpu_and_mig.txt"]["expected"]["gres"]
    assert [node.gpus for node in lines] == [2, 4]
    before, after = reader.records(text_of("slurm_conf_diff_mig_dgx.txt"))
    assert (before.gres, after.gres) == ("gpu:8", "gpu:3g.40gb:8,gpu:2g.20gb:8,gpu:1g.10gb:16")


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    expected = BY_FILE[name]["expected"]
    found = reader_slurm_errors.read(text_of(name))
    assert found
    assert found[0].cause == expected["cause"]
    assert found[0].failure_class.value == expected["class"]
    assert found[0].host == expected.get("node", found[0].host)
    if "skew_seconds" in expected:
        assert reader_slurm_errors.skew(text_of(name)) == expected["skew_seconds"]
    if "differs" in expected:
        assert {key: list(pair) for key, pair in reader_slurm_errors.hardware_differences(text_of(name)).items()} == expected[
            "differs"
        ]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("slurmctld: error: auth/slurm: decode_jwt: token expired", "credential expired: decode_jwt: token expired"),
        (
            "slurmctld: error: auth/slurm: unexpected uid of the initiator",
            "slurmctld: error: auth/slurm: unexpected uid of the initiator",
        ),
    ],
)
def test_only_times_are_expired_credentials(line: str, cause: str) -> None:
    assert [error.cause for error in reader_slurm_errors.read(line)] == [cause]


@pytest.mark.parametrize("case", AWAITING, ids=lambda case: case["file"])
def test_errors_beside_slurm(case: dict[str, Any]) -> None:
    """slurmd's and sbatch's own errors, and what kubelet and Helm say of Slurm's pods."""
    text, expected = text_of(case["file"]), case["expected"]
    errors = reader_slurm_errors.read(text)
    found = errors[0] if errors else reader_kubelet.cause(text.splitlines()) or reader_kubelet.cause([text])
    if found is None:
        helm = causes.classify(causes.HELM, [("", text)])
        assert helm is not None
        assert helm.failure_class.value == expected["class"]
        return
    assert (found.cause, found.failure_class.value) == (expected["cause"], expected["class"])
