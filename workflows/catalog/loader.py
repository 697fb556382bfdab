"""Load the catalog's files into a frozen `Catalog` and check it as a whole: references exist, criteria are known, no cycles."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from workflows.catalog.criteria import DIMENSIONS
from workflows.catalog.model import Component, Criteria, Overlay
from workflows.spec.errors import SpecError, SpecErrors
from workflows.spec.fields import Section, SnakeId
from workflows.spec.image_references import floating_images
from workflows.spec.parsing.loading import load_as, read

HERE = Path(__file__).parent


_OPEN_STAGES = ("base_services", "sharing", "gang", "slurm")
"""Stages that install every chart that the catalog has for them; each other one installs charts of this package only."""

_WITH_OBJECTS = ("gang", "network_operator")
"""Stages that apply the objects of their components."""


class CatalogFile(Section):
    """Schema of a file `components.yaml`: the charts and manifests by component id."""

    components: Mapping[SnakeId, Component]


@dataclass(frozen=True, slots=True)
class Catalog:
    """The loaded catalog: components by id, overlays by name, and the contents of values files and object files by file name."""

    components: Mapping[str, Component]
    overlays: Mapping[str, Overlay]
    values: Mapping[str, Mapping[str, Any]]
    objects: Mapping[str, Mapping[str, Any]]

    def order(self) -> tuple[str, ...]:
        """Return the component ids so that each comes after the components it needs; ties keep the order of `components.yaml`."""
        sorter = graphlib.TopologicalSorter({name: component.needs for name, component in self.components.items()})
        sorter.prepare()
        position = {name: index for index, name in enumerate(self.components)}
        ordered: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=position.__getitem__)
            ordered.extend(ready)
            sorter.done(*ready)
        return tuple(ordered)


def load(*more: Path) -> Catalog:
    """Return the catalog of this package with the folders `more` of a site, which have its layout, laid over it.

    A folder may hold `components.yaml`, `overlays/`, `values/` and `objects/`. An entry with a known name replaces the earlier one.

    Raises:
        SpecErrors: a file is invalid, names something that does not exist, or components or overlays need each other in a cycle.
    """
    return _read((HERE, *more)) if more else _packaged()


@cache
def _packaged() -> Catalog:
    return _read((HERE,))


def _read(folders: tuple[Path, ...]) -> Catalog:
    components: dict[str, Component] = {}
    overlays: dict[str, Overlay] = {}
    values: dict[str, Mapping[str, Any]] = {}
    objects: dict[str, Mapping[str, Any]] = {}
    for folder in folders:
        listed = folder / "components.yaml"
        if listed.exists():
            components.update(load_as(CatalogFile, listed).components)
        overlays.update({file.stem: load_as(Overlay, file) for file in _yaml(folder / "overlays")})
        values.update({file.name: _mapping(file) for file in _yaml(folder / "values")})
        objects.update({file.name: _mapping(file) for file in _yaml(folder / "objects")})
    catalog = Catalog(components, overlays, values, objects)
    errors = [*_faults(catalog), *(_of_site(catalog, _packaged()) if len(folders) > 1 else ())]
    if errors:
        raise SpecErrors("catalog", errors)
    return catalog


def _yaml(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _mapping(file: Path) -> Mapping[str, Any]:
    data = read(file)[1].data
    return data if isinstance(data, dict) else {}


def _faults(catalog: Catalog) -> Iterator[SpecError]:
    for name, component in catalog.components.items():
        path = f"components.{name}"
        yield from _criteria_faults(f"{path}.when", component.when)
        for needed in component.needs:
            if needed not in catalog.components:
                yield SpecError(f"{path}.needs", f"{needed} is no component", "name a component")
        if component.values and component.values not in catalog.values:
            yield SpecError(f"{path}.values", f"values/{component.values} does not exist", "add the file")
        for part in component.objects:
            yield from _criteria_faults(f"{path}.objects", part.when)
            if part.file not in catalog.objects:
                yield SpecError(f"{path}.objects", f"objects/{part.file} does not exist", "add the file")
    yield from _overlay_faults(catalog)
    yield from _floating_faults(catalog)
    yield from _cycles(catalog)


def _floating_faults(catalog: Catalog) -> Iterator[SpecError]:
    """Yield the image references of values, objects and overlays that float; rule P13 checks those of the spec."""
    parts: list[tuple[str, Any]] = [(f"values.{name}", content) for name, content in catalog.values.items()]
    parts += [(f"objects.{name}", content) for name, content in catalog.objects.items()]
    parts += [
        (f"overlays.{name}.components.{component}.values", part.values)
        for name, overlay in catalog.overlays.items()
        for component, part in overlay.components.items()
    ]
    for path, content in parts:
        for place, image in floating_images(content, path):
            yield SpecError(place, f"image {image} means different things at different times", "write one exact tag, or a digest")


def _of_site(catalog: Catalog, package: Catalog) -> Iterator[SpecError]:
    """Yield errors for components of a site that no stage would install, or whose gates do not exist."""
    gates = {gate for component in package.components.values() for gate in component.gates}
    for name, component in catalog.components.items():
        path = f"components.{name}"
        if name not in package.components and component.manifest is not None:
            fix = "give the chart, or apply the manifest yourself; or leave it out"
            yield SpecError(f"{path}.manifest", "no stage applies manifests of a site", fix, str(component.manifest))
        elif name not in package.components and component.stage not in _OPEN_STAGES:
            problem = f"stage {component.stage} installs its own charts only, so nothing would install this one"
            yield SpecError(f"{path}.stage", problem, f"choose from {', '.join(_OPEN_STAGES)}", component.stage)
        if component.objects and component.stage not in _WITH_OBJECTS:
            problem = f"stage {component.stage} applies charts only, so nothing would apply these objects"
            yield SpecError(f"{path}.objects", problem, "put them into the chart, or into a chart of their own")
        for gate in component.gates:
            if gate not in gates or not gate.startswith(f"{component.stage}/"):
                of_stage = ", ".join(sorted(known for known in gates if known.startswith(f"{component.stage}/")))
                problem = f"{gate} is no gate that judges charts of stage {component.stage}"
                yield SpecError(f"{path}.gates", problem, f"choose from {of_stage}" if of_stage else "leave it out", gate)


def _overlay_faults(catalog: Catalog) -> Iterator[SpecError]:
    for name, overlay in catalog.overlays.items():
        yield from _criteria_faults(f"overlays.{name}.criteria", overlay.criteria)
        if overlay.base is not None and overlay.base not in catalog.overlays:
            yield SpecError(f"overlays.{name}.base", f"{overlay.base} is no overlay", "name an overlay")
        for component in overlay.components:
            if component not in catalog.components:
                yield SpecError(f"overlays.{name}.components", f"{component} is no component", "name a component")


def _criteria_faults(path: str, criteria: Criteria) -> Iterator[SpecError]:
    for dimension in criteria:
        if dimension not in DIMENSIONS:
            yield SpecError(f"{path}.{dimension}", "this is no dimension", f"choose from {', '.join(DIMENSIONS)}")


def _cycles(catalog: Catalog) -> Iterator[SpecError]:
    graphs: dict[str, dict[str, tuple[str, ...]]] = {
        "components": {name: component.needs for name, component in catalog.components.items()},
        "overlays": {name: (overlay.base,) if overlay.base else () for name, overlay in catalog.overlays.items()},
    }
    for what, graph in graphs.items():
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            yield SpecError(what, f"these need each other in a circle: {' → '.join(error.args[1])}", "remove one of the needs")
