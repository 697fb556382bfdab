"""Sort the files of a user's repository: manifests, charts with their templates and values, kustomizations, other data."""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from workflows.gitops_check import yaml_stream
from workflows.gitops_check.gitops_findings import GitopsFinding, UncheckedPart, finding
from workflows.gitops_check.yaml_stream import StreamDocument

_YAML = (".yaml", ".yml")
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_MOST_PARTS = 64
"""Limit of folders in a path."""
_KUSTOMIZE_GROUP = "kustomize.config.k8s.io/"


@dataclass(frozen=True, slots=True)
class DeliveredObject:
    """A Kubernetes object of the tree: its file, its document, and the part of the document that is the object.

    `base` leads to the object within its document, which is longer for items of a List. `origin` names the chart that it was
    rendered from; it is empty for a file. `is_patch`: the object is only a patch of a kustomization.
    """

    path: str
    document: StreamDocument
    data: Mapping[str, Any]
    base: yaml_stream.Path = ()
    origin: str = ""
    is_patch: bool = False

    @property
    def kind(self) -> str:
        """Return the kind."""
        return str(self.data.get("kind", ""))

    @property
    def group(self) -> str:
        """Return the API group; empty for the core group."""
        version = str(self.data.get("apiVersion", ""))
        return version.rpartition("/")[0]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the metadata; empty if it is no mapping."""
        return mapping(self.data.get("metadata"))

    @property
    def name(self) -> str:
        """Return the name; empty if there is none."""
        return str(self.metadata.get("name") or "")

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the annotations as text."""
        return {str(key): str(value) for key, value in mapping(self.metadata.get("annotations")).items()}

    @property
    def spec(self) -> Mapping[str, Any]:
        """Return the spec; empty if it is no mapping."""
        return mapping(self.data.get("spec"))

    def where(self, *path: str | int) -> tuple[str, int]:
        """Return file and line of a field; a rendered object has no line of its own."""
        return (self.path, 0 if self.origin else self.document.line(*self.base, *path))


@dataclass(frozen=True, slots=True)
class ValuesFile:
    """A file with Helm values."""

    path: str
    document: StreamDocument


@dataclass(frozen=True, slots=True)
class LocalChart:
    """A chart in the tree: Chart.yaml, values files, template texts, and the names of all its files below its folder."""

    folder: str
    document: StreamDocument
    values: Mapping[str, ValuesFile]
    templates: Mapping[str, str]
    files: frozenset[str]

    @property
    def name(self) -> str:
        """Return the chart's name."""
        return str(mapping(self.document.data).get("name") or posixpath.basename(self.folder))

    @property
    def chart_file(self) -> str:
        """Return the path of Chart.yaml."""
        return posixpath.join(self.folder, "Chart.yaml")

    @property
    def dependencies(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Return number and entry of each dependency."""
        return [(number, mapping(entry)) for number, entry in enumerate(sequence(mapping(self.document.data).get("dependencies")))]


@dataclass
class DeliveryTree:
    """The sorted files of a repository. `other` are documents that are no objects: values, and data of generators."""

    files: Mapping[str, str]
    manifests: list[DeliveredObject] = field(default_factory=list)
    charts: dict[str, LocalChart] = field(default_factory=dict)
    kustomizations: dict[str, DeliveredObject] = field(default_factory=dict)
    other: list[ValuesFile] = field(default_factory=list)
    findings: list[GitopsFinding] = field(default_factory=list)
    unchecked: list[UncheckedPart] = field(default_factory=list)
    folders: frozenset[str] = frozenset()
    values: dict[str, ValuesFile] = field(default_factory=dict)

    @cached_property
    def by_path(self) -> Mapping[str, list[DeliveredObject]]:
        """Return the whole objects of each file."""
        paths: dict[str, list[DeliveredObject]] = {}
        for manifest in self.all_manifests():
            paths.setdefault(manifest.path, []).append(manifest)
        return paths

    @cached_property
    def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return sorted(self.files)

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, sorted."""
        prefix = f"{folder}/" if folder else ""
        return self.paths[bisect_left(self.paths, prefix) : bisect_left(self.paths, prefix[:-1] + "0")] if prefix else self.paths

    def all_manifests(self) -> Iterator[DeliveredObject]:
        """Yield every whole object: no patches."""
        return (manifest for manifest in self.manifests if not manifest.is_patch)

    def folder_of(self, path: str) -> str | None:
        """Return the folder of this tree that a path of a repository names; None if there is none.

        The tree may be a folder of its repository, so leading parts of the path may be missing here.
        """
        parts = [part for part in posixpath.normpath(path or ".").split("/") if part not in ("", ".")]
        if ".." in parts or len(parts) > _MOST_PARTS:
            return None
        candidates = ["/".join(parts[start:]) for start in range(max(len(parts), 1))]
        return next((name for name in candidates if name in self.folders), None)

    def file_of(self, path: str) -> str | None:
        """Return the file of this tree that a path of a repository names; None if there is none (see `folder_of`)."""
        parts = [part for part in posixpath.normpath(path).split("/") if part not in ("", ".")]
        if len(parts) > _MOST_PARTS:
            return None
        return next((name for start in range(len(parts)) if (name := "/".join(parts[start:])) in self.files), None)

    def values_of(self, path: str) -> ValuesFile | None:
        """Return the values in a file; None if it holds none."""
        folder, name = posixpath.split(path)
        chart = self.charts.get(folder)
        if chart is not None and name in chart.values:
            return chart.values[name]
        return self.values.get(path)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping as it is; an empty one for everything else."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: Any) -> list[Any]:
    """Return a list as it is; an empty one for everything else."""
    return value if isinstance(value, list) else []


def sort_files(files: Mapping[str, str]) -> DeliveryTree:
    """Return the sorted tree of these files: path from the root, with slashes → text."""
    folders = {""} | {"/".join(path.split("/")[:depth]) for path in files for depth in range(1, path.count("/") + 1)}
    tree = DeliveryTree(files, folders=frozenset(folders))
    roots = {posixpath.dirname(path) for path in files if posixpath.basename(path) == "Chart.yaml"}
    own = {root for root in roots if not _is_vendored(root, roots)}
    for root in sorted(own):
        _read_chart(tree, root)
    for path, text in sorted(files.items()):
        if _is_vendored(posixpath.dirname(path), roots):
            continue
        inner = _root_of(path, own)
        if inner is None:
            _read_file(tree, path, text)
        elif path[len(inner) :].lstrip("/").startswith("crds/") and path.endswith(_YAML):
            _read_objects(tree, path, text)
    _mark_patches(tree)
    return tree


def _is_vendored(folder: str, roots: set[str]) -> bool:
    """Return True for a folder within `charts/` of a chart: a dependency that somebody else wrote."""
    parts = folder.split("/")
    return any(part == "charts" and "/".join(parts[:depth]) in roots for depth, part in enumerate(parts))


def _root_of(path: str, roots: set[str]) -> str | None:
    """Return the innermost chart whose file this is."""
    parts = path.split("/")
    return next((name for depth in range(len(parts) - 1, -1, -1) if (name := "/".join(parts[:depth])) in roots), None)


def _read_chart(tree: DeliveryTree, root: str) -> None:
    path = posixpath.join(root, "Chart.yaml")
    read = _documents(tree, path, tree.files[path])
    if not read or not isinstance(read[0].data, dict):
        return
    prefix = f"{root}/" if root else ""
    within = {name.removeprefix(prefix): tree.files[name] for name in tree.below(root)}
    chart = LocalChart(root, read[0], {}, {}, frozenset(within))
    values, templates = dict(chart.values), dict(chart.templates)
    for name, text in sorted(within.items()):
        if name.startswith("templates/"):
            templates[name] = text
            # a template without actions is a plain manifest
            if name.endswith(_YAML) and "{{" not in text:
                _read_objects(tree, prefix + name, text)
        elif "/" not in name and name.endswith(_YAML) and name not in ("Chart.yaml", "Chart.lock"):
            for document in _documents(tree, prefix + name, text)[:1]:
                values[name] = ValuesFile(prefix + name, document)
    tree.charts[root] = LocalChart(root, read[0], values, templates, chart.files)


def _read_file(tree: DeliveryTree, path: str, text: str) -> None:
    name = posixpath.basename(path)
    if name in _KUSTOMIZATIONS or path.endswith(_YAML) or (path.endswith(".json") and '"apiVersion"' in text):
        _read_objects(tree, path, text)


def _read_objects(tree: DeliveryTree, path: str, text: str) -> None:
    for document in _documents(tree, path, text):
        _take(tree, path, document, document.data, ())


def _take(tree: DeliveryTree, path: str, document: StreamDocument, data: Any, base: yaml_stream.Path) -> None:
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str) or "apiVersion" not in data:
        if not base and _is_kustomization(path, data):
            tree.kustomizations[posixpath.dirname(path)] = DeliveredObject(path, document, data)
        elif not base:
            tree.other.append(ValuesFile(path, document))
            tree.values.setdefault(path, tree.other[-1])
        return
    if _is_kustomization(path, data):
        tree.kustomizations[posixpath.dirname(path)] = DeliveredObject(path, document, data)
    elif data["kind"] == "List" and isinstance(data.get("items"), list):
        for number, item in enumerate(data["items"]):
            _take(tree, path, document, item, (*base, "items", number))
    else:
        tree.manifests.append(DeliveredObject(path, document, data, base))


def _is_kustomization(path: str, data: Any) -> bool:
    if not isinstance(data, dict) or posixpath.basename(path) not in _KUSTOMIZATIONS:
        return False
    return str(data.get("apiVersion", _KUSTOMIZE_GROUP)).startswith(_KUSTOMIZE_GROUP)


def _documents(tree: DeliveryTree, path: str, text: str) -> list[StreamDocument]:
    try:
        read = yaml_stream.documents(text)
    except yaml_stream.BadStream as problem:
        if "{{" in text:
            tree.unchecked.append(UncheckedPart(path, "it is a template and no YAML, and nothing in this tree renders it"))
        else:
            fix = "check the indentation and quotes at this line"
            tree.findings.append(finding("yaml-invalid", (path, problem.line), f"not readable: {problem.problem}", fix))
        return []
    for document in read:
        for keys, line in document.duplicates:
            words = f"the key {'.'.join(map(str, keys))} is written twice, and only the last one counts"
            tree.findings.append(finding("yaml-duplicate-key", (path, line), words, "keep one of the two"))
    return read


def _mark_patches(tree: DeliveryTree) -> None:
    """Mark objects that a kustomization names as patches: they are parts of objects."""
    patches: set[str] = set()
    for folder, kustomization in tree.kustomizations.items():
        entries = [mapping(entry).get("path") for entry in sequence(kustomization.data.get("patches"))]
        entries += sequence(kustomization.data.get("patchesStrategicMerge"))
        patches |= {posixpath.normpath(posixpath.join(folder, entry)) for entry in entries if isinstance(entry, str)}
    tree.manifests = [
        DeliveredObject(entry.path, entry.document, entry.data, entry.base, entry.origin, is_patch=True)
        if entry.path in patches
        else entry
        for entry in tree.manifests
    ]


def rendered_manifests(path: str, origin: str, text: str) -> list[DeliveredObject]:
    """Return the objects of a rendered chart; `path` is the chart's folder. Raises BadStream."""
    made = DeliveryTree({})
    for document in yaml_stream.documents(text):
        _take(made, path, document, document.data, ())
    return [DeliveredObject(path, entry.document, entry.data, entry.base, origin) for entry in made.manifests]
