"""The closed-schema check: a rendered field that Argo's models do not know is an error, never dropped in silence.

Hera's generated models ignore unknown fields (hera_argo §1.3), so the rendered data is walked beside them.
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
"""Fields of Argo Workflows 4.1 that Hera 7.1's models do not have yet (hera_argo §1.2)."""

_MODELS: dict[str, type[BaseModel]] = {
    "Workflow": m.Workflow,
    "WorkflowTemplate": m.WorkflowTemplate,
    "CronWorkflow": m.CronWorkflow,
    "WorkflowEventBinding": m.WorkflowEventBinding,
}


def unknown_fields(manifest: dict[str, Any]) -> tuple[str, ...]:
    """Paths of all fields that no model knows, such as `spec.templates[2].dag.tasks[0].depend`; kinds that are not Argo's pass."""
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
    known = {}
    for name, field in kind.model_fields.items():
        known[field.alias or name] = field.annotation
    newer = NEWER.get(kind.__name__, frozenset())
    for key, item in value.items():
        here = f"{path}.{key}".lstrip(".")
        if key in known:
            yield from _walk(item, known[key], here)
        elif key not in newer:
            yield here


def _plain(kind: Any) -> Any:
    """A type without Annotated and Optional; of a union the first model."""
    while True:
        origin = typing.get_origin(kind)
        if origin is typing.Annotated:
            kind = typing.get_args(kind)[0]
        elif origin in (typing.Union, types.UnionType):
            options = [option for option in typing.get_args(kind) if option is not type(None)]
            kind = options[0] if options else Any
        else:
            return kind
