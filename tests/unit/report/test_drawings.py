"""Figures and drawings at the head of a report are those of the records, and large fleets stay readable."""

import re

import msgspec

from steps.contract.fleet import Host
from steps.contract.measurements import Measurement, merged, versions
from steps.contract.runs.quarantine import QuarantineEntry
from steps.contract.verdict import NodeVerdict, Status, of_nodes
from steps.report import drawings, html, model, public_report, source, text
from steps.report.assembly import build

RAILS = Measurement(
    quantity="rails",
    unit="Gbit/s",
    floor=360.0,
    columns=("mlx5_0", "mlx5_1"),
    values={"gpu001": (387.0, 386.0), "gpu002": (387.0, 96.0), "gpu003": (None, 387.0)},
)


def measured(stored: source.StoredRun, *rows: Measurement) -> source.StoredRun:
    """A run whose first record with a verdict also has measurements."""
    records = list(stored.records)
    place = next(place for place, record in enumerate(records) if record.evidence.verdict is not None)
    verdict = msgspec.structs.replace(
        records[place].evidence.verdict, measured=rows, versions=versions({"kernel": {"gpu001": "6.8"}})
    )
    records[place] = msgspec.structs.replace(
        records[place], evidence=msgspec.structs.replace(records[place].evidence, verdict=verdict)
    )
    return msgspec.structs.replace(stored, records=tuple(records))


def test_the_tile_of_a_quantity_has_the_slowest_node_that_counts(stored: source.StoredRun) -> None:
    report = build(measured(stored, RAILS))
    tile = drawings.measured_tiles(report)[0]
    assert (tile.value, tile.tone, tile.note) == ("96 Gbit/s", "fail", "slowest node gpu002, floor 360 Gbit/s")
    without = msgspec.structs.replace(report, quarantine=(QuarantineEntry(node="gpu002", stage="x", gate="x/y", reason="slow"),))
    assert drawings.measured_tiles(without)[0].value == "386 Gbit/s"


def test_a_quantity_without_a_value_is_not_measured(stored: source.StoredRun) -> None:
    empty = msgspec.structs.replace(RAILS, values={})
    tile = drawings.measured_tiles(build(measured(stored, empty)))[0]
    assert (tile.value, tile.tone) == ("not measured", "inconclusive")


def test_values_of_all_nodes_together_are_judged_against_the_floor(stored: source.StoredRun) -> None:
    whole = Measurement(quantity="all", unit="GB/s", floor=350.0, together=349.9)
    assert drawings.measured_tiles(build(measured(stored, whole)))[0].tone == "fail"
    assert drawings.measured_tiles(build(measured(stored, msgspec.structs.replace(whole, together=350.0))))[0].tone == "pass"
    assert drawings.measured_tiles(build(measured(stored, msgspec.structs.replace(whole, floor=None))))[0].tone == ""


def test_a_run_that_did_not_pass_accepts_no_node(stored: source.StoredRun) -> None:
    report = build(stored)
    assert report.status == "fail"
    assert report.accepted == ()
    assert report.badge == "fail"


def test_a_pass_names_how_many_were_set_aside(stored: source.StoredRun) -> None:
    report = msgspec.structs.replace(build(stored), status="pass")
    assert report.aside == ("gpu003",)
    assert report.badge == "pass, 1 set aside"
    assert "gpu003" not in report.accepted
    assert text.text(report).startswith(f"{report.cluster}: pass, 1 set aside: ")


def test_the_heat_map_marks_what_is_below_the_floor_or_unmeasured() -> None:
    nodes = [model.HostReport(name=name, group="gpu", rack="", gates={}) for name in RAILS.values]
    heat = drawings.heat_map(RAILS, nodes)
    assert heat is not None
    assert [[cell.tone for cell in row] for row in heat.cells.values()] == [["pass", "pass"], ["pass", "fail"], ["", "pass"]]
    assert heat.cells["gpu002"][1].title == "gpu002 mlx5_1: 96 Gbit/s"
    assert heat.racks[0].findings == 2


def test_the_strip_plot_places_nodes_on_either_side_of_the_floor() -> None:
    plot = drawings.strip(RAILS)
    assert plot is not None
    assert plot.floor is not None
    assert [(dot.x < plot.floor, dot.tone) for dot in plot.dots] == [(False, "pass"), (True, "fail"), (False, "pass")]
    assert all(0 <= dot.x <= 100 and 0 < dot.y < 100 for dot in plot.dots)


def test_equal_values_have_a_strip_plot_too() -> None:
    plot = drawings.strip(msgspec.structs.replace(RAILS, floor=None, values={"a": (5.0,), "b": (5.0,)}))
    assert plot is not None
    assert {dot.x for dot in plot.dots} == {50.0}


def test_of_a_large_fleet_only_racks_with_findings_are_open() -> None:
    nodes = [model.HostReport(name=f"gpu{n:04d}", group="gpu", rack=f"r{n // 20}", gates={}) for n in range(1000)]
    racks = drawings.racks(nodes, ["gpu0025"])
    assert [rack.open for rack in racks] == [False, True] + [False] * 48
    assert sum(len(rack.nodes) for rack in racks) == 1000
    unracked = [msgspec.structs.replace(node, rack="") for node in nodes]
    assert max(len(rack.nodes) for rack in drawings.racks(unracked, [])) == drawings.RACK


def test_a_thousand_nodes_make_a_page_below_three_megabytes(stored: source.StoredRun) -> None:
    names = [f"gpu{n:04d}" for n in range(1000)]
    verdict = of_nodes("os_prep/nodes", [NodeVerdict(node=name, status=Status.PASS) for name in names], what="prepared")
    rails = msgspec.structs.replace(RAILS, values=dict.fromkeys(names, (380.0, 381.0)))
    record = next(record for record in stored.records if record.evidence.verdict is not None)
    evidence = msgspec.structs.replace(record.evidence, verdict=msgspec.structs.replace(verdict, measured=(rails,)))
    hosts = tuple(Host(name=name, address="10.0.0.1", role="agent", group="gpu", rack=f"r{name[3:6]}") for name in names)
    large = msgspec.structs.replace(stored, hosts=hosts, records=(msgspec.structs.replace(record, evidence=evidence),))
    page = html.html(build(large))
    assert page.count("<circle") == 1000
    assert len(page) < 3_000_000


def test_times_of_a_stage_its_tasks_and_its_wait_are_shares_of_the_run(stored: source.StoredRun) -> None:
    rows = drawings.time_rows(build(stored))
    assert rows[0].name == "os_prep"
    assert all(0 <= bar.left <= 100 and bar.left + bar.width <= 101 for row in rows for bar in row.bars)
    assert {task.name for task in rows[0].tasks} == {
        record.evidence.task for record in stored.records if record.evidence.stage == "os_prep"
    }


def test_measurements_for_outsiders_name_no_node(stored: source.StoredRun) -> None:
    public = public_report.public(build(measured(stored, RAILS)))
    assert len(public.measured[0].values) == 3
    assert all(re.fullmatch(r"node \d+", name) for name in public.measured[0].values)
    assert "gpu" not in str(public.versions)


def test_versions_of_several_records_are_put_together() -> None:
    first, second = versions({"kernel": {"a": "6.8", "b": "5.15", "c": ""}}), versions({"kernel": {"d": "6.8", "a": "6.8"}})
    assert merged([first, second]) == {"kernel": {"6.8": ("a", "d"), "5.15": ("b",)}}
