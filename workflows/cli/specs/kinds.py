"""The kind of a spec file, the pipeline that it is for, and command-line options that have no meaning for that pipeline."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from steps.contract.operation import BRINGUP as WHOLE
from steps.contract.operation import Operation
from workflows.cli.specs.pipelines import BRINGUP, IMAGE, Pipeline, Wish

if TYPE_CHECKING:
    from workflows.plan.model import Plan
    from workflows.render.steps import Settings

IMAGE_SPEC = "Image"
"""The kind of file that describes a node image."""


def kind_of(path: Path) -> object:
    """Return the `kind` that a file states, or None. Raises SpecErrors for a file that cannot be read."""
    from workflows.spec.loading import read

    data = read(path)[1].data
    return data.get("kind") if isinstance(data, dict) else None


def of(source: str) -> Pipeline:
    """Return the pipeline of a spec argument: image for a file of kind Image, otherwise bringup. Raises SpecErrors."""
    path = Path(source)
    return IMAGE if path.is_file() and kind_of(path) == IMAGE_SPEC else BRINGUP


def planned(source: str, only: Sequence[str], until: str, operation: Operation = WHOLE) -> "Plan":
    """Return the plan of a spec argument. Raises NoSpec, SpecErrors, PlanError; BadParameter for options that do not apply
    to it.
    """
    chosen = of(source)
    if chosen is IMAGE and (only or operation != WHOLE):
        raise typer.BadParameter(f"{source} is an image spec: --until narrows it; --only and --operation are for a cluster")
    path, loaded = chosen.read(source)
    return chosen.plan(path, loaded, Wish(only=tuple(only), until=until, operation=operation))


def builder(source: str, named: str) -> "Callable[[Plan, Settings], Any]":
    """Return the render function of a spec argument: of the pipeline `named`, else of the spec's own. Raises BadParameter."""
    from workflows import bringup, image
    from workflows.cli.specs.compiling import PIPELINES

    own_kind = image.KIND if of(source) is IMAGE else bringup.KIND
    if named and named not in PIPELINES:
        raise typer.BadParameter(f"{named!r} is no pipeline; use {', '.join(PIPELINES)}")
    if named and (named == image.KIND) != (own_kind == image.KIND):
        subject = "a node image" if own_kind == image.KIND else "a cluster"
        raise typer.BadParameter(f"{source} is the spec of {subject}: pipeline {named} cannot be rendered from it")
    return PIPELINES[named or own_kind]
