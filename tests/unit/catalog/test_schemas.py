"""The shipped schemas of chart values: they name their pins, fit the catalog's own values, and find misspelt keys."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import chart_schemas
from tests.unit.catalog.test_published_schemas import CASES
from workflows import catalog, spec
from workflows.catalog.chart_schemas import chart_schema, kind_schemas
from workflows.examples import path
from workflows.spec.compat.value_shapes import ShapeComparison

HAS_DATA = pytest.mark.skipif(not chart_schemas.DATA.is_dir(), reason=f"no published charts and CRDs at {chart_schemas.DATA}")


@HAS_DATA
def test_the_shipped_files_are_those_of_the_published_charts() -> None:
    shipped = {file.name: file.read_text(encoding="utf-8") for file in chart_schemas.FOLDER.glob("*.yaml")}
    assert shipped == chart_schemas.texts(), "run python -m tests.chart_schemas"


def test_every_pin_with_a_schema_is_named_in_it() -> None:
    for component in catalog.load().components:
        if (schema := chart_schema(component)) is not None:
            assert schema.pins == tuple(chart_schemas.pins(component))
            assert schema.source
    assert all(entry["source"] for entry in kind_schemas().values())


@pytest.mark.parametrize("name", CASES)
def test_the_catalogs_own_values_and_objects_fit(name: str) -> None:
    assert [issue for issue in catalog.check(CASES[name], catalog.load()) if issue.rule == "P33"] == []


def overridden(**values: Any) -> spec.ClusterSpec:
    base = yaml.safe_load(path("h200-16").read_text(encoding="utf-8"))
    return spec.load(yaml.safe_dump(base | {"overrides": {name: {"values": tree} for name, tree in values.items()}}))


def test_keys_that_no_schema_knows_are_listed() -> None:
    checked = overridden(gpu_operator={"driver": {"enabled": True}, "frobnicate": {"a": 1}}, mpi_operator={"b": 2})
    releases = {release.id: release for release in catalog.resolve(checked, catalog.load())}
    assert catalog.unverified_values(releases["gpu_operator"]) == ("frobnicate.a",)
    assert catalog.unverified_values(releases["mpi_operator"]) == ("b",)
    assert catalog.unverified_values(releases["volcano"]) == ()


def test_an_object_of_a_site_is_compared_with_its_kind(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    pool = {"apiVersion": "nv-ipam.nvidia.com/v1alpha1", "kind": "IPPool", "metadata": {"name": "fabric"}}
    wrong = {"subnet": "172.20.0.0/14", "perNodeBlocksize": 64, "gatway": "172.20.0.1", "surplus": {}}
    (tmp_path / "objects" / "ip_pool.yaml").write_text(yaml.safe_dump({"objects": [pool | {"spec": wrong}]}), encoding="utf-8")
    issues = catalog.check(spec.load(path("multi-rack-232")), catalog.load(tmp_path))
    found = [f"{issue.problem}; {issue.fix}" for issue in issues if issue.rule == "P33"]
    assert any("spec.perNodeBlocksize is no field" in text and "did you mean perNodeBlockSize?" in text for text in found)
    assert any("spec.gatway is no field" in text and "did you mean gateway?" in text for text in found)
    assert any("spec.surplus is no field" in text and "remove it" in text for text in found)


def test_only_some_of_many_unknown_keys_are_compared_with_all_known_ones() -> None:
    values = {f"drivr{number}x": 1 for number in range(60_000)}
    flaws = list(ShapeComparison().flaws(values, {"driver": "any"}, ""))
    assert len(flaws) == 60_000
    assert {flaw.flaw for flaw in flaws[100:]} == {"unknown"}
