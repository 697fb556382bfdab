"""Whole bring-ups of many specs rehearsed without delays: every shipped example, and generated specs that pair all choices."""

import time
from pathlib import Path

import pytest

from steps.clients.store import Store
from tests.unit.rehearsal import pairwise_specs
from workflows import bringup, examples
from workflows.engines.folders import RunFolder, StateFolder
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.rehearsal import approver
from workflows.rehearsal.rehearsal_run import RehearsalOptions, rehearse
from workflows.render.bundle import render
from workflows.spec import ClusterSpec, load

LARGE = {"multi-rack-232"}
"""Examples whose rehearsal takes longer than a minute."""


def refusals(spec: ClusterSpec, folder: Path, until: str = "") -> list[str]:
    """Rehearse a spec without delays and return what did not pass; print the seconds that it took."""
    began = time.monotonic()
    run = StateFolder(folder).run("r")
    plan = compile_plan(spec, until=until)
    options = RehearsalOptions(delay_scale=0.0)
    result = rehearse(run, plan, render(plan, bringup.build), options, [approver.approving_observer(run)])
    print(f"{spec.name}, {len(plan.hosts)} nodes until {plan.stages[-1].id}: {time.monotonic() - began:.1f} s")
    problems = list(_refused(plan, run))
    return problems or ([] if result.exit_code == 0 else [f"exit code {result.exit_code}"])


def _refused(plan: Plan, run: RunFolder) -> list[str]:
    for stage in plan.stages:
        records = Store(run.home.store).records(run.name, stage.id, "judge")
        verdict = records[0].verdict if records else None
        if verdict is None:
            return [f"{stage.id}: no verdict"]
        if not verdict.is_pass:
            return [f"{stage.id}: {verdict.gate}: {verdict.reason}"]
    return []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LARGE else name for name in examples.names()]
)
def test_every_example_rehearses_to_the_end(name: str, tmp_path: Path) -> None:
    assert not refusals(load(examples.path(name)), tmp_path)


@pytest.mark.sampled_rows(3)
@pytest.mark.parametrize("choice", pairwise_specs.choices(), ids=pairwise_specs.title)
def test_a_generated_spec_rehearses_to_the_end(choice: pairwise_specs.Choice, tmp_path: Path) -> None:
    try:
        spec = pairwise_specs.spec_of(choice)
    except ValueError as error:
        pytest.fail(f"no longer a valid spec (then run `python -m tests.unit.rehearsal.pairwise_specs`): {error}")
    assert not refusals(spec, tmp_path)


@pytest.mark.long
def test_the_generated_specs_have_every_pair_that_is_possible() -> None:
    kept = {pair for choice in pairwise_specs.choices() for pair in pairwise_specs.pairs(choice)}
    assert {pair for choice in pairwise_specs.generated() for pair in pairwise_specs.pairs(choice)} <= kept


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
