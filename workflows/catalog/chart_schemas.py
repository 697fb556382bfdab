"""Schemas of chart values and of the kinds that the catalog applies, from the folder `schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from workflows.spec.parsing.loading import read

_FOLDER = Path(__file__).with_name("schemas")


@dataclass(frozen=True, slots=True)
class ChartSchema:
    """The values that a chart takes, the pins that this stands for, and the version that it was made from.

    `is_partial`: the chart's own values are not public, and the schema has only the keys of published examples.
    """

    pins: tuple[str, ...]
    source: str
    values: Mapping[str, Any] = field(default_factory=dict)
    is_partial: bool = False


@cache
def chart_schema(component: str) -> ChartSchema | None:
    """Return the schema of a component's chart; None if its project publishes no default values."""
    file = _FOLDER / f"{component}.yaml"
    if not file.is_file():
        return None
    data: Any = read(file)[1].data
    return ChartSchema(tuple(map(str, data["pins"])), data["source"], data["values"], bool(data.get("partial")))


@cache
def kind_schemas() -> Mapping[str, Mapping[str, Any]]:
    """Return GROUP/VERSION/KIND → `source` and `spec` of every kind whose fields are known."""
    return _kinds("objects.yaml")


@cache
def delivered_kind_schemas() -> Mapping[str, Mapping[str, Any]]:
    """Return the schemas of `kind_schemas` and of further kinds that trees of users hold, such as Applications and NodeSets."""
    return {**kind_schemas(), **_kinds("delivered_objects.yaml")}


def _kinds(name: str) -> dict[str, Mapping[str, Any]]:
    data: Any = read(_FOLDER / name)[1].data
    return dict(data["kinds"])
