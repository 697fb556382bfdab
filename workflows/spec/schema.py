"""JSON Schema of the specs, for editors: every key described, enums and patterns included.

Rules between sections and versions are not in it; `load` and the compatibility rules check those.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from workflows.spec.cluster import ClusterSpec
from workflows.spec.image import ImageSpec
from workflows.spec.others import FactorySpec, StackSpec
from workflows.spec.recipe import KIND as RECIPE
from workflows.spec.recipe import RecipeSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"

KINDS: dict[str, type[BaseModel]] = {
    "Cluster": ClusterSpec,
    "Factory": FactorySpec,
    "Stack": StackSpec,
    "Image": ImageSpec,
    RECIPE: RecipeSpec,
}
"""The four specs, and the recipe of a node image, by their `kind`."""


def json_schema(kind: str = "Cluster") -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a spec; `kind` is one of `KINDS`."""
    schema = KINDS[kind].model_json_schema(by_alias=True)
    return {"$schema": DIALECT, "title": f"bringup/v1 {kind}", **{key: value for key, value in schema.items() if key != "title"}}
