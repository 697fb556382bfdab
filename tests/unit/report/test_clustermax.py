"""The table of ClusterMAX: every named gate exists, no item is passed in silence, stale floors are reported."""

import datetime
import importlib
from typing import Any

import msgspec
import pytest

from steps.contract.measurements import Measurement
from steps.report import model
from steps.stages.validation import gate
from steps.stages.validation.contract import IntraExpectation, IntraObservation
from tests.gates.case_files import FOLDER, read_case
from workflows.app.runs import clustermax_report
from workflows.catalog import clustermax

GATES = sorted({gate for item in clustermax.table().items for gate in item.gates})


def report(gates: dict[str, str], versions: dict[str, Any] | None = None, status: str = "pass") -> model.Report:
    shown = tuple(model.GateReport(gate=gate, status=state) for gate, state in gates.items())
    stage = model.StageReport(id="validation", title="", status=status, reason="", gates=shown)
    names = ("run", "engine", "plan", "cluster", "owner", "revision", "target_uid", "workflow", "sentence")
    texts: dict[str, Any] = dict.fromkeys(names, "x")
    nothing = dict.fromkeys(("nodes", "quarantine", "approvals", "releases", "troubles", "attempts"), ())
    fields = texts | nothing | {"status": status, "started": 0.0, "finished": 0.0, "simulated": True, "tools": {}}
    return model.Report(**fields, stages=(stage,), versions=versions or {})


def status(gates: dict[str, str], item: str, versions: dict[str, Any] | None = None) -> str:
    return next(row.status for row in clustermax_report.rows(report(gates, versions)) if row.id == item)


@pytest.mark.parametrize("gate", GATES)
def test_each_named_gate_exists(gate: str) -> None:
    stage, _, name = gate.partition("/")
    assert callable(getattr(importlib.import_module(f"steps.stages.{stage}.gate"), name))


def test_items_are_named_once_and_those_without_a_gate_say_why() -> None:
    items = clustermax.table().items
    assert len({item.id for item in items}) == len(items) >= 90
    assert all(item.gates or item.versions or item.why for item in items)


def test_a_pass_needs_every_gate_and_a_gate_that_did_not_run_leaves_the_item_unverified() -> None:
    both = {"network_operator/functional": "pass", "validation/localise": "pass"}
    assert status(both, "ib-health") == "pass"
    assert status(both | {"validation/localise": "fail"}, "ib-health") == "fail"
    assert status(both | {"validation/localise": "inconclusive"}, "ib-health") == "unverified"
    assert status({}, "ib-health") == "unverified"
    assert {row.status for row in clustermax_report.rows(report({}))} == {"unverified", "attested"}, "nothing ran, nothing passes"


@pytest.mark.parametrize(
    ("driver", "expected"), [("580.159.03", "pass"), ("580.126.20", "fail"), ("610.10.01", "unverified"), ("", "unverified")]
)
def test_versions_are_compared_with_the_floor_of_their_branch(driver: str, expected: str) -> None:
    seen = {"driver version": {driver: ("gpu1",)}} if driver else {}
    assert status({}, "security-nvidia-driver", seen) == expected


def test_floors_are_stale_after_two_weeks() -> None:
    floors = clustermax.table().floors
    assert not floors.is_stale(floors.date + datetime.timedelta(days=14))
    assert floors.is_stale(floors.date + datetime.timedelta(days=15))
    assert "unverified and attested items do not count" in clustermax_report.text(report({}))


def test_what_a_level_leaves_out_or_an_image_lacks_proves_nothing_although_the_gate_passes() -> None:
    passed = {"validation/dcgm": "pass"}
    nodes = tuple(model.HostReport(name=name, group="gpu", rack="", gates=passed) for name in ("gpu1", "gpu2"))

    def shown(*rows: Measurement) -> str:
        run = msgspec.structs.replace(report(passed), nodes=nodes, measured=rows)
        return next(row.status for row in clustermax_report.rows(run) if row.id == "active-nvbandwidth")

    ways = [
        Measurement(quantity=f"{way}, slowest GPU", unit="GB/s", values={"gpu1": (52.9,), "gpu2": (53.0,)})
        for way in ("host to GPU", "GPU to host")
    ]
    assert shown() == "unverified"
    assert shown(*ways) == "pass"
    assert shown(ways[0], msgspec.structs.replace(ways[1], values={"gpu1": (52.9,)})) == "unverified"
    assert shown(ways[0], msgspec.structs.replace(ways[1], unjudged=True)) == "unverified"


def test_adapters_without_a_floor_are_measured_and_not_judged() -> None:
    case = read_case(FOLDER / "validation/intra_pass.json")
    seen, want = msgspec.convert(case["seen"], IntraObservation), msgspec.convert(case["want"], IntraExpectation)
    assert [row.unjudged for row in gate.intra(seen, want).measured] == [False, False]
    assert want.fabric is not None
    bare = msgspec.structs.replace(want, fabric=msgspec.structs.replace(want.fabric, floor=None))
    verdict = gate.intra(seen, bare)
    assert [row.unjudged for row in verdict.measured] == [False, True]
    assert "NCCL over the adapters alone: not judged: no floor, and too few nodes for a median" in verdict.notes
