"""Pipeline files of a factory: YAML documents of WorkflowTemplates and what they read, checked before they are released."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from workflows.spec.errors import SpecError, SpecErrors
from workflows.spec.pipelines.factory_spec import FactorySpec

KINDS = {"WorkflowTemplate": "argoproj.io/v1alpha1", "ConfigMap": "v1"}
"""Kinds that a file may hold, with their API versions."""
MOST_BYTES, MOST_DOCUMENTS = 1_000_000, 100
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_pipelines(spec: FactorySpec, folder: Path) -> Mapping[str, tuple[dict[str, Any], ...]]:
    """Return path → objects of the pipeline files of a factory; paths start from `folder`. Raises SpecErrors with all errors."""
    errors: list[SpecError] = []
    objects: dict[str, tuple[dict[str, Any], ...]] = {}
    for index, entry in enumerate(spec.pipelines):
        path = f"pipelines[{index}].file"
        try:
            objects[entry.file] = tuple(_documents(folder / entry.file))
        except (OSError, ValueError, yaml.YAMLError) as error:
            errors.append(SpecError(path, _reason(error), "write it with `bringup render SPEC --out FOLDER`", entry.file))
            continue
        templates = [document["metadata"]["name"] for document in objects[entry.file] if document["kind"] == "WorkflowTemplate"]
        if not templates:
            errors.append(SpecError(path, "the file has no WorkflowTemplate", "name a file that releases one", entry.file))
        elif entry.schedule and entry.template is None and len(templates) > 1:
            fix = f"add template: {templates[0]}, or another one"
            errors.append(SpecError(f"pipelines[{index}].schedule", f"the file has {len(templates)} templates", fix))
        elif entry.template and entry.template not in templates:
            fix = f"write one of {', '.join(templates)}"
            errors.append(SpecError(f"pipelines[{index}].template", "the file has no such template", fix, entry.template))
    errors.extend(_repeated(spec, objects))
    if errors:
        raise SpecErrors(f"pipelines of {spec.name}", errors)
    return objects


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or "unreadable"
    return str(error).splitlines()[0] if str(error) else "unreadable"


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file. Raises OSError, YAMLError, and ValueError for what is no object of `KINDS`."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"the file has more than {MOST_BYTES} bytes")
    # a few aliases of aliases unfold to more than the memory holds
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(data, Loader=_LOADER)):
        raise ValueError("the file has YAML aliases; write out what they stand for")
    for number, document in enumerate(entry for entry in yaml.load_all(data, Loader=_LOADER) if entry is not None):
        if number >= MOST_DOCUMENTS:
            raise ValueError(f"the file has more than {MOST_DOCUMENTS} documents")
        yield _checked(document)


def _checked(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict) or KINDS.get(str(document.get("kind"))) != document.get("apiVersion"):
        kind = document.get("kind") if isinstance(document, dict) else type(document).__name__
        raise ValueError(f"a document of kind {str(kind)[:60]}: a pipeline file has {' and '.join(KINDS)} alone")
    written = document.get("metadata")
    meta: dict[str, Any] = written if isinstance(written, dict) else {}
    name = meta.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{document['kind']} without a valid name: {str(name)[:60]!r}")
    if document["kind"] == "WorkflowTemplate" and not isinstance(document.get("spec"), dict):
        raise ValueError(f"WorkflowTemplate {name} has no spec")
    kept = {key: meta[key] for key in ("labels", "annotations") if isinstance(meta.get(key), dict)}
    return {**document, "metadata": {"name": name, **kept}}


def _repeated(spec: FactorySpec, objects: Mapping[str, Iterable[dict[str, Any]]]) -> Iterator[SpecError]:
    """Yield an error for each template that two files release into one project."""
    places: dict[tuple[str, str], str] = {}
    for index, entry in enumerate(spec.pipelines):
        for document in objects.get(entry.file, ()):
            key = (entry.project, f"{document['kind']} {document['metadata']['name']}")
            if document["kind"] == "WorkflowTemplate" and key in places:
                problem = f"{key[1]} of project {entry.project} is in {places[key]} too"
                yield SpecError(f"pipelines[{index}].file", problem, "release each template once", entry.file)
            places.setdefault(key, entry.file)
