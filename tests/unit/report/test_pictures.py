"""Pictures are well-formed SVG without scripts, say in words what they show, escape names, and stay small for large fleets."""

import random
import re
from xml.etree import ElementTree

import msgspec
import pytest

from steps.contract.node_tests.nccl import NcclLog, NcclRow, NcclRun
from steps.contract.objects.checks import CheckPod
from steps.localise.contract import FaultDiagnosis
from steps.report import html, pictures, source
from steps.report.assembly import build
from steps.report.pictures import Curve, RoundSummary
from steps.stages.validation.contract import FabricProgram, FunctionalObservation, LocaliseObservation, MpiJob, PlayedRound

EVIL = '<script>alert("x")</script>'
CURVES = (
    Curve(name="all_reduce", points=((1024, 0.4), (2**20, 40.0), (2**34, 365.8))),
    Curve(name=f"peer {EVIL}", points=((2**34, 480.0),), peer=True),
)
FLEET = {f"gpu{number:04d}": 388.0 + number % 5 for number in range(1000)} | {"gpu0042": 301.0, EVIL: 96.0}
RAILS = {f"gpu{number:04d}": (387.0,) * 8 for number in range(1000)} | {"gpu0017": (387.0, 96.0, None), EVIL: (1.0,)}
ROUNDS = tuple(RoundSummary(number=number, purpose=f"halves {EVIL}", passed=500, failed=3, unknown=1) for number in range(1, 90))

DRAWN = {
    "bandwidth": (pictures.bandwidth_by_size("all nodes", CURVES, floor=330.0), ["all_reduce: 365.8", "Floor 330 GB/s"]),
    "bandwidth of nothing": (pictures.bandwidth_by_size("all nodes", ()), ["No bandwidth was measured."]),
    "scaling": (pictures.scaling("scaling", ((2, 470.0), (4, 365.8), (64, 330.0)), floor=300.0), ["470 GB/s at 2 nodes", "Fit: "]),
    "scaling of one size": (pictures.scaling("scaling", ((2, 470.0),)), ["Too few sizes"]),
    "scaling of nothing": (pictures.scaling("scaling", ()), ["No scaling was measured."]),
    "distribution": (pictures.distribution("rails", FLEET, floor=360.0, unit="Gbit/s"), ["2 low outliers", "gpu0042 301"]),
    "distribution of equals": (pictures.distribution("rails", {"a": 1.0, "b": 1.0}), ["No low outliers."]),
    "distribution of nothing": (pictures.distribution("rails", {}), ["Nothing was measured."]),
    "rails": (
        pictures.rail_map("rails", RAILS, {node: f"leaf{node[3:5]}" for node in FLEET}, floor=360.0),
        ["2 rails below the floor: gpu0017 rail 1 96", "1 rails were not measured"],
    ),
    "rails of nothing": (pictures.rail_map("rails", {}, {}), ["No rail was measured."]),
    "localisation": (pictures.localisation_history("localisation", ROUNDS, f"bad: {EVIL}"), ["89 rounds, 44856 tests."]),
    "localisation without rounds": (pictures.localisation_history("localisation", (), ""), ["No round was run."]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_safe_accessible_and_bounded(name: str) -> None:
    svg, sentences = DRAWN[name]
    root = ElementTree.fromstring(svg)
    title, words = root[0], root[1]
    assert (title.tag, words.tag) == ("{http://www.w3.org/2000/svg}title", "{http://www.w3.org/2000/svg}desc")
    assert root.get("role") == "img"
    assert all(sentence in (words.text or "") for sentence in sentences), words.text
    assert EVIL not in svg
    assert not re.search(r"<script|href=|url\(|onload", svg)
    assert len(svg) < 400_000


def test_the_worst_map_of_rails_of_1000_nodes_is_bounded() -> None:
    chance = random.Random(1)
    rails = {f"gpu{number:04d}": tuple(chance.choice((100.0, 380.0)) for _ in range(8)) for number in range(1000)}
    assert len(pictures.rail_map("rails", rails, {}, floor=360.0)) < 1_200_000


def test_outliers_are_those_below_the_floor_or_far_from_the_fleet() -> None:
    assert [node for node, _ in pictures.outliers(FLEET, 360.0)] == [EVIL, "gpu0042"]
    assert pictures.outliers({"a": 10.0, "b": 10.0, "c": 9.0}) == [("c", 9.0)]
    assert pictures.outliers({"a": 10.0, "b": 10.0}, 12.0) == [("a", 10.0), ("b", 10.0)]


def test_the_report_shows_the_nccl_table_that_its_evidence_has(stored: source.StoredRun) -> None:
    rows = (NcclRow(size=1024, in_place=0.4, out_of_place=0.5), NcclRow(size=2**34, in_place=365.8))
    run = NcclRun(collective="all_reduce", rows=rows)
    seen = FunctionalObservation(job=MpiJob(), log=NcclLog(runs=(run,)))
    records = list(stored.records)
    evidence = msgspec.structs.replace(records[-1].evidence, stage="validation", observation=msgspec.to_builtins(seen))
    records[-1] = msgspec.structs.replace(records[-1], evidence=evidence)
    report = build(msgspec.structs.replace(stored, records=tuple(records)))
    assert report.curves == (Curve(name="all_reduce", points=((1024.0, 0.4), (2.0**34, 365.8))),)
    page = html.html(report)
    assert "all_reduce: 365.8 GB/s at most" in page
    assert report.scaling == ()
    assert (build(stored).curves, build(stored).scaling) == ((), ())


def test_the_report_shows_collectives_and_the_scaling_curve(stored: source.StoredRun) -> None:
    def log(*speeds: float) -> NcclLog:
        return NcclLog(runs=tuple(NcclRun(rows=(NcclRow(size=2**33, in_place=speed),)) for speed in speeds))

    programs = (
        FabricProgram(name="all_reduce", nodes=2, log=log(470.0)),
        FabricProgram(name="alltoall", nodes=4, log=log(46.0, 45.0)),
        FabricProgram(name="osu_latency", absent=True),
    )
    workers = tuple(CheckPod(name=f"w-{number}", node=f"gpu{number}") for number in range(4))
    seen = FunctionalObservation(job=MpiJob(), log=log(386.0, 387.0), workers=workers, programs=programs)
    records = list(stored.records)
    evidence = msgspec.structs.replace(records[-1].evidence, stage="validation", observation=msgspec.to_builtins(seen))
    records[-1] = msgspec.structs.replace(records[-1], evidence=evidence)
    report = build(msgspec.structs.replace(stored, records=tuple(records)))
    assert [(curve.name, curve.points[-1][1]) for curve in report.curves] == [
        ("all_reduce, run 1", 386.0),
        ("all_reduce, run 2", 387.0),
        ("alltoall", 45.0),
    ]
    assert report.scaling == ((2, 470.0), (4, 386.0))
    assert "470 GB/s at 2 nodes, 386 GB/s at 4 nodes. Fit: " in html.html(report)


def test_the_report_shows_the_rounds_of_a_localisation(stored: source.StoredRun) -> None:
    played = PlayedRound(number=1, purpose=f"matching {EVIL}", passed=6, failed=2)
    seen = LocaliseObservation(diagnosis=FaultDiagnosis(rounds=1, tests=8), rounds=(played,))
    records = list(stored.records)
    evidence = msgspec.structs.replace(records[-1].evidence, stage="validation", observation=msgspec.to_builtins(seen))
    records[-1] = msgspec.structs.replace(records[-1], evidence=evidence)
    page = html.html(build(msgspec.structs.replace(stored, records=tuple(records))))
    assert "1 rounds, 8 tests." in page
    assert "8 tests, 2 failed" in page
    assert EVIL not in page
    assert build(stored).localisation == ()
