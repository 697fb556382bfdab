"""Applications of Argo CD in a tree: their sources and policies, the objects that each applies, the charts that each installs."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from workflows.gitops_check.delivery_tree import DeliveredObject, DeliveryTree, LocalChart, ValuesFile, mapping, sequence
from workflows.gitops_check.yaml_stream import BadStream, Path, StreamDocument, documents

_GROUP = "argoproj.io"
WAVE = "argocd.argoproj.io/sync-wave"
_FINALIZER = "resources-finalizer.argocd.argoproj.io"


@dataclass(frozen=True, slots=True)
class ApplicationSource:
    """A source of an Application: a chart of a repository, or a path in Git. `at` is its place in the manifest."""

    data: Mapping[str, Any]
    at: Path

    def text(self, key: str) -> str:
        """Return a field as text; empty if it is missing."""
        value = self.data.get(key)
        return "" if value is None else str(value)

    @property
    def helm(self) -> Mapping[str, Any]:
        """Return the settings of Helm."""
        return mapping(self.data.get("helm"))


@dataclass(frozen=True, slots=True)
class DeliveredApplication:
    """An Application, or the template of an ApplicationSet (`is_template`), with its spec at `at` in the manifest."""

    manifest: DeliveredObject
    spec: Mapping[str, Any]
    name: str
    at: Path
    is_template: bool = False

    @property
    def sources(self) -> list[ApplicationSource]:
        """Return the sources; Argo CD ignores `source` where `sources` has entries."""
        several = sequence(self.spec.get("sources"))
        if several:
            return [ApplicationSource(mapping(entry), (*self.at, "sources", number)) for number, entry in enumerate(several)]
        single = mapping(self.spec.get("source"))
        return [ApplicationSource(single, (*self.at, "source"))] if single else []

    @property
    def namespace(self) -> str:
        """Return the namespace of the destination."""
        return str(mapping(self.spec.get("destination")).get("namespace") or "")

    @property
    def cluster(self) -> str:
        """Return the server or name of the destination."""
        place = mapping(self.spec.get("destination"))
        return str(place.get("server") or place.get("name") or "")

    @property
    def automated(self) -> Mapping[str, Any]:
        """Return the automated sync policy; empty if a person starts each sync."""
        return mapping(mapping(self.spec.get("syncPolicy")).get("automated"))

    @property
    def options(self) -> frozenset[str]:
        """Return the sync options."""
        return frozenset(map(str, sequence(mapping(self.spec.get("syncPolicy")).get("syncOptions"))))

    @property
    def prunes(self) -> bool:
        """Return True if a sync deletes what is gone from Git."""
        return self.automated.get("prune") is True

    @property
    def heals(self) -> bool:
        """Return True if Argo CD restores what others change."""
        return self.automated.get("selfHeal") is True

    @property
    def ignored(self) -> list[Mapping[str, Any]]:
        """Return the entries of ignoreDifferences."""
        return [mapping(entry) for entry in sequence(self.spec.get("ignoreDifferences"))]

    @property
    def wave(self) -> int:
        """Return the sync wave; 0 without one."""
        text = self.manifest.annotations.get(WAVE, "0")
        return int(text) if text.lstrip("-").isdigit() and len(text) < 8 else 0

    @property
    def cascades(self) -> bool:
        """Return True if deleting the Application deletes its objects."""
        finalizers = map(str, sequence(self.manifest.metadata.get("finalizers")))
        return not self.is_template and any(entry.startswith(_FINALIZER) for entry in finalizers)

    def where(self, *path: str | int) -> tuple[str, int]:
        """Return file and line of a field of the spec."""
        return self.manifest.where(*self.at, *path)

    def ignores(self, kind: str, field_name: str) -> bool:
        """Return True if ignoreDifferences has this field of a kind."""
        for entry in self.ignored:
            paths = " ".join(map(str, (*sequence(entry.get("jsonPointers")), *sequence(entry.get("jqPathExpressions")))))
            # managedFieldsManagers name who owns fields: an autoscaler's own are among them
            if entry.get("kind") in (kind, "*") and (field_name in paths or entry.get("managedFieldsManagers")):
                return True
        return False


def applications(tree: DeliveryTree) -> list[DeliveredApplication]:
    """Return all Applications and templates of ApplicationSets of a tree."""
    delivered: list[DeliveredApplication] = []
    for manifest in tree.all_manifests():
        if manifest.group != _GROUP:
            continue
        if manifest.kind == "Application":
            delivered.append(DeliveredApplication(manifest, manifest.spec, manifest.name, ("spec",)))
        elif manifest.kind == "ApplicationSet":
            template = mapping(manifest.spec.get("template"))
            name = str(mapping(template.get("metadata")).get("name") or manifest.name)
            at: Path = ("spec", "template", "spec")
            delivered.append(DeliveredApplication(manifest, mapping(template.get("spec")), name, at, is_template=True))
    return delivered


def is_templated(text: str) -> bool:
    """Return True if a generator fills in a text."""
    return "{{" in text


# ---- objects of a path in Git ---------------------------------------------------------------------------------------------------


def objects_at(
    tree: DeliveryTree, source: ApplicationSource, rendered: Mapping[str, list[DeliveredObject]]
) -> list[DeliveredObject]:
    """Return the objects that a path in Git holds: of a chart if it was rendered, of a kustomization, or of a folder."""
    folder = tree.folder_of(source.text("path"))
    if folder is None or source.text("chart"):
        return []
    if folder in tree.charts:
        return rendered.get(folder) or [entry for path in tree.below(folder) for entry in tree.by_path.get(path, ())]
    if folder in tree.kustomizations:
        return list(_of_kustomization(tree, folder))
    directory = mapping(source.data.get("directory"))
    paths = (path for path in tree.below(folder) if _is_read(path, folder, directory))
    return [entry for path in paths for entry in tree.by_path.get(path, ())]


def _is_read(path: str, folder: str, directory: Mapping[str, Any]) -> bool:
    inner = path.removeprefix(f"{folder}/") if folder else path
    if "/" in inner and directory.get("recurse") is not True:
        return False
    include, exclude = str(directory.get("include") or "*"), str(directory.get("exclude") or "")
    return any(fnmatchcase(inner, part) for part in _braces(include)) and not any(fnmatchcase(inner, p) for p in _braces(exclude))


def _braces(pattern: str) -> list[str]:
    """Return the alternatives of `{a,b}`, the only braces that Argo CD's guide shows."""
    return pattern[1:-1].split(",") if pattern.startswith("{") and pattern.endswith("}") else [pattern]


def _of_kustomization(tree: DeliveryTree, first: str) -> Iterator[DeliveredObject]:
    """Yield the objects of a kustomization and of those that it names, each once."""
    seen, folders = {first}, [first]
    while folders:
        folder = folders.pop()
        kustomization = tree.kustomizations[folder].data
        for entry in (*sequence(kustomization.get("resources")), *sequence(kustomization.get("components"))):
            path = posixpath.normpath(posixpath.join(folder, str(entry)))
            if path not in seen:
                seen.add(path)
                yield from tree.by_path.get(path, ())
                folders += [path] if path in tree.kustomizations else []


# ---- charts that are installed --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValuesLayerOfTree:
    """Values from one place: file, function that gives lines, data, and the path within the file's document."""

    entry: ValuesFile | DeliveredObject
    data: Mapping[str, Any]
    base: Path = ()

    def where(self, *path: str | int) -> tuple[str, int]:
        """Return file and line of a value."""
        return self.entry.path, self.entry.document.line(*self.base, *path)


@dataclass(frozen=True, slots=True)
class ChartUse:
    """A chart that is installed: by an Application, as a dependency of a local chart, or both. Values of later layers win.

    `missing` are value files that the tree does not have: then a value that is not set may be set there.
    """

    chart: str
    version: str
    repository: str
    layers: tuple[ValuesLayerOfTree, ...]
    place: tuple[str, int]
    application: DeliveredApplication | None = None
    local: LocalChart | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def value(self, *path: str) -> Any:
        """Return a value; None if it is not set, or null."""
        here: Any = self.values
        for part in path:
            here = here.get(part) if isinstance(here, Mapping) else None
        return here

    def where(self, *path: str | int) -> tuple[str, int]:
        """Return file and line of a value, or of the nearest part above it; of the chart's own place if nothing sets it."""
        for length in range(len(path), 0, -1):
            for layer in reversed(self.layers):
                if _has(layer.data, path[:length]):
                    return layer.where(*path[:length])
        return self.layers[-1].where() if self.layers else self.place

    @property
    def namespace(self) -> str:
        """Return the namespace that it is installed into; empty if no Application says."""
        return self.application.namespace if self.application else ""


def _has(data: Any, path: tuple[str | int, ...]) -> bool:
    for part in path:
        if isinstance(data, Mapping) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return False
    return True


def merged(layers: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    """Return values merged as Helm does: maps by key, everything else replaced, a null removes."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            result[key] = merged((below, value)) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def chart_uses(tree: DeliveryTree, delivered: list[DeliveredApplication]) -> list[ChartUse]:
    """Return every chart that the tree installs, with merged values."""
    uses: list[ChartUse] = []
    reached: set[str] = set()
    for application in delivered:
        for source in application.sources:
            folder = tree.folder_of(source.text("path")) if source.text("path") else None
            if source.text("chart"):
                uses.append(_of_repository(tree, application, source))
            elif folder is not None and folder in tree.charts:
                reached.add(folder)
                layers = _layers(tree, application, source, tree.charts[folder])
                uses += _of_local(tree.charts[folder], layers, application, _missing(tree, source))
    for folder, chart in tree.charts.items():
        if folder not in reached:
            uses += _of_local(chart, _own_layers(chart), None)
    return uses


def _of_repository(tree: DeliveryTree, application: DeliveredApplication, source: ApplicationSource) -> ChartUse:
    layers = _layers(tree, application, source, None)
    return ChartUse(
        chart=source.text("chart").rpartition("/")[2],
        version=source.text("targetRevision"),
        repository=f"{source.text('repoURL')}/{source.text('chart')}",
        layers=layers,
        place=application.manifest.where(*source.at, "chart"),
        application=application,
        values=merged(tuple(layer.data for layer in layers)),
        missing=_missing(tree, source),
    )


def _missing(tree: DeliveryTree, source: ApplicationSource) -> tuple[str, ...]:
    """Return the value files of a source that are not in the tree; files of Helm's repositories and of generators among them."""
    names = map(str, sequence(source.helm.get("valueFiles")))
    return tuple(name for name in names if values_file(tree, source, name) is None and not _holds_nothing(tree, source, name))


def _holds_nothing(tree: DeliveryTree, source: ApplicationSource, name: str) -> bool:
    """Return True for a file that is there and has nothing but comments."""
    lines = tree.files.get(tree.file_of(values_path(source, name)) or "", "-").splitlines()
    return all(line.lstrip().startswith(("#", "---")) or not line.strip() for line in lines)


def _of_local(
    chart: LocalChart,
    layers: tuple[ValuesLayerOfTree, ...],
    application: DeliveredApplication | None,
    missing: tuple[str, ...] = (),
) -> Iterator[ChartUse]:
    """Yield the chart itself if it has templates or nothing else, and each dependency with the values below its name."""
    yield ChartUse(
        chart=chart.name,
        version="",
        repository="",
        layers=layers,
        place=(chart.chart_file, chart.document.line("name")),
        application=application,
        local=chart,
        values=merged(tuple(layer.data for layer in layers)),
    )
    for number, dependency in chart.dependencies:
        key = str(dependency.get("alias") or dependency.get("name") or "")
        below = tuple(
            ValuesLayerOfTree(layer.entry, mapping(layer.data.get(key)), (*layer.base, key))
            for layer in layers
            if isinstance(layer.data.get(key), Mapping)
        )
        yield ChartUse(
            chart=str(dependency.get("name") or ""),
            version=str(dependency.get("version") or ""),
            repository=str(dependency.get("repository") or ""),
            layers=below,
            place=(chart.chart_file, chart.document.line("dependencies", number)),
            application=application,
            values=merged(tuple(layer.data for layer in below)),
            missing=missing,
        )


def _own_layers(chart: LocalChart) -> tuple[ValuesLayerOfTree, ...]:
    own = chart.values.get("values.yaml")
    return (ValuesLayerOfTree(own, mapping(own.document.data)),) if own else ()


def _layers(
    tree: DeliveryTree, application: DeliveredApplication, source: ApplicationSource, chart: LocalChart | None
) -> tuple[ValuesLayerOfTree, ...]:
    layers = list(_own_layers(chart)) if chart else []
    for name in map(str, sequence(source.helm.get("valueFiles"))):
        entry = values_file(tree, source, name)
        # values.yaml of the chart itself is there already
        if entry is not None and entry.path not in {layer.entry.path for layer in layers}:
            layers.append(ValuesLayerOfTree(entry, mapping(entry.document.data)))
    if isinstance(text := source.helm.get("values"), str):
        layers += _inline_text(application.manifest, source, text)
    if isinstance(inline := source.helm.get("valuesObject"), Mapping):
        layers.append(ValuesLayerOfTree(application.manifest, inline, (*source.at, "helm", "valuesObject")))
    if parameters := _parameters(source):
        layers.append(ValuesLayerOfTree(application.manifest, parameters, (*source.at, "helm", "parameters")))
    return tuple(layers)


def _inline_text(manifest: DeliveredObject, source: ApplicationSource, text: str) -> list[ValuesLayerOfTree]:
    """Return the layer of `helm.values`, a text with YAML; unreadable text gives none, as a rule of its own reports it."""
    line = manifest.document.line(*manifest.base, *source.at, "helm", "values")
    try:
        read = documents(text)
    except BadStream:
        return []
    entries = [ValuesFile(manifest.path, StreamDocument(document.data, line)) for document in read[:1]]
    return [ValuesLayerOfTree(entry, mapping(entry.document.data)) for entry in entries]


def _parameters(source: ApplicationSource) -> dict[str, Any]:
    """Return `helm.parameters` as values. Names with brackets or escaped dots are left out."""
    values: dict[str, Any] = {}
    for entry in map(mapping, sequence(source.helm.get("parameters"))):
        name = str(entry.get("name") or "")
        if not name or set(name) & set("[]\\"):
            continue
        nested: Any = entry.get("value")
        for part in reversed(name.split(".")):
            nested = {part: nested}
        values = merged((values, nested))
    return values


def values_file(tree: DeliveryTree, source: ApplicationSource, name: str) -> ValuesFile | None:
    """Return the file of the tree that an entry of valueFiles names: of another source by `$REF/`, else below the path."""
    file = tree.file_of(values_path(source, name))
    return tree.values_of(file) if file else None


def values_path(source: ApplicationSource, name: str) -> str:
    """Return the path in Git that an entry of valueFiles names."""
    return name.partition("/")[2] if name.startswith("$") else posixpath.join(source.text("path"), name)
