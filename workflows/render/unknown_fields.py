"""Find rendered fields that Argo's models do not know, because Argo would drop them silently.

Hera's generated models ignore unknown fields, so the rendered data is compared with the models field by field
(`steps/docs/facts/argo.md`, Hera and the models of Argo).
"""

import types
import typing
from collections.abc import Iterator
from typing import Any

from hera.workflows import models as m
from pydantic import BaseModel, RootModel

NEWER: dict[str, frozenset[str]] = {
    "Template": frozenset({"pendingTimeout", "podResources", "resourceClaims"}),
    "WorkflowSpec": frozenset({"podResources", "resourceClaims", "executorPlugins"}),
}
"""Model → fields of Argo Workflows 4.1 that the models of Hera 7.1, generated from Argo 4.0, lack."""

_MODELS: dict[str, type[BaseModel]] = {
    "Workflow": m.Workflow,
    "WorkflowTemplate": m.WorkflowTemplate,
    "CronWorkflow": m.CronWorkflow,
    "WorkflowEventBinding": m.WorkflowEventBinding,
}


def unknown_fields(manifest: dict[str, Any]) -> tuple[str, ...]:
    """Return the paths of all fields that Argo's models do not know, such as `spec.templates[2].dag.tasks[0].depend`.

    The result is empty for kinds that are not Argo's.
    """
    model = _MODELS.get(str(manifest.get("kind")))
    return tuple(_walk(manifest, model, "")) if model else ()


def _walk(value: Any, kind: Any, path: str) -> Iterator[str]:
    kind = _plain(kind)
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, RootModel):
        yield from _walk(value, kind.model_fields["root"].annotation, path)
    elif isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from _fields(value, kind, path)
    elif isinstance(value, dict) and typing.get_origin(kind) is dict:
        for key, item in value.items():
            yield from _walk(item, typing.get_args(kind)[1], f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        inner = typing.get_args(kind)[0] if typing.get_args(kind) else Any
        for number, item in enumerate(value):
            yield from _walk(item, inner, f"{path}[{number}]")


def _fields(value: dict[str, Any], kind: type[BaseModel], path: str) -> Iterator[str]:
    known = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
    newer = NEWER.get(kind.__name__, frozenset())
    for key, item in value.items():
        field_path = f"{path}.{key}".lstrip(".")
        if key in known:
            yield from _walk(item, known[key], field_path)
        elif key not in newer:
            yield field_path


def _plain(kind: Any) -> Any:
    """Return the type inside Annotated and Optional; for a union, its first member that is not None."""
    while True:
        origin = typing.get_origin(kind)
        if origin is typing.Annotated:
            kind = typing.get_args(kind)[0]
        elif origin in (typing.Union, types.UnionType):
            options = [option for option in typing.get_args(kind) if option is not type(None)]
            kind = options[0] if options else Any
        else:
            return kind
