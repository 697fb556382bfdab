"""The pipeline of node images: load the spec, resolve the recipe, plan the run, and tell if a retry may mend a failed build."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from workflows.app.images import image_specs, recipe_origins, shipped_recipes
from workflows.app.run_options import Pipeline, Wish
from workflows.app.runs import build_retries
from workflows.app.specs import sources
from workflows.nodeimage import recipe_resolution
from workflows.nodeimage.image_spec import ImageSpec
from workflows.nodeimage.recipe_resolution import Resolved

if TYPE_CHECKING:
    from workflows.plan.model import Plan


def _read(spec: str) -> tuple[Path, ImageSpec]:
    path = sources.find_image(spec)
    return path, image_specs.load(path)


def _plan(path: Path, loaded: ImageSpec, wish: Wish, *, resolved: Resolved | None = None) -> Plan:
    from workflows.nodeimage.image_plan import compile_image  # an image that has not changed needs no plan

    request = image_specs.asked(path, loaded)
    resolved = resolved or recipe_resolution.resolve(request)
    origin = recipe_origins.of(path, request, wish.source)
    recipe = msgspec.structs.replace(resolved.recipe, origin=origin)
    relock = shipped_recipes.relock(path, loaded)
    return compile_image(loaded, recipe, resolved.files, until=wish.until, again=wish.again, relock=relock)


IMAGE = Pipeline("image", _read, _plan, build_retries.ended)


def of_image(path: Path, loaded: ImageSpec, resolved: Resolved) -> Pipeline:
    """Return the image pipeline for a spec and recipe that are loaded already, so that it does not read their files again."""
    return replace(IMAGE, read=lambda _: (path, loaded), plan=partial(_plan, resolved=resolved))
