"""JSON Schema of the specs for editors: every key with its description, enums and patterns.

The schema has no rules between sections and versions; `load` and the compatibility rules check those.
"""

from __future__ import annotations

import importlib
from typing import Any

from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"

KINDS = {
    "Cluster": "workflows.spec.cluster_spec.ClusterSpec",
    "Factory": "workflows.spec.pipelines.factory_spec.FactorySpec",
    "Stack": "workflows.softwarestack.stack_spec.StackSpec",
    "Image": "workflows.nodeimage.image_spec.ImageSpec",
    "ImageRecipe": "workflows.nodeimage.recipe_spec.RecipeSpec",
}
"""Import path of the model for each `kind` of file. Paths, not imports, because the models of images import this package."""


def json_schema(kind: str = "Cluster") -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a spec; `kind` is one of `KINDS`."""
    module, _, name = KINDS[kind].rpartition(".")
    model: type[BaseModel] = getattr(importlib.import_module(module), name)
    schema = model.model_json_schema(by_alias=True)
    return {"$schema": DIALECT, "title": f"bringup/v1 {kind}", **{key: value for key, value in schema.items() if key != "title"}}
