"""Which pipeline the spec of a command is for, told by its file, and what of a command line means nothing to it."""

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
"""The kind of file that `spec.image` reads."""


def kind_of(path: Path) -> object:
    """What a file says that it is; None where it does not say. Raises SpecErrors for a file that cannot be read."""
    from workflows.spec.loading import read

    data = read(path)[1].data
    return data.get("kind") if isinstance(data, dict) else None


def of(source: str) -> Pipeline:
    """The pipeline of a spec argument: a file of kind Image is one of a node image, all else is of a cluster. Raises SpecErrors."""
    path = Path(source)
    return IMAGE if path.is_file() and kind_of(path) == IMAGE_SPEC else BRINGUP


def planned(source: str, only: Sequence[str], until: str, operation: Operation = WHOLE) -> "Plan":
    """The plan of a spec argument. Raises NoSpec, SpecErrors, PlanError; BadParameter for what its pipeline has not."""
    chosen = of(source)
    if chosen is IMAGE and (only or operation != WHOLE):
        raise typer.BadParameter(f"{source} is an image spec: --until narrows it; --only and --operation are for a cluster")
    path, loaded = chosen.read(source)
    return chosen.plan(path, loaded, Wish(only=tuple(only), until=until, operation=operation))


def builder(source: str, named: str) -> "Callable[[Plan, Settings], Any]":
    """What renders the plan of a spec argument: the pipeline that is `named`, else the spec's own. Raises BadParameter."""
    from workflows import bringup, image
    from workflows.cli.specs.compiling import PIPELINES

    own = image.KIND if of(source) is IMAGE else bringup.KIND
    if named and named not in PIPELINES:
        raise typer.BadParameter(f"{named!r} is no pipeline; use {', '.join(PIPELINES)}")
    if named and (named == image.KIND) != (own == image.KIND):
        what = "a node image" if own == image.KIND else "a cluster"
        raise typer.BadParameter(f"{source} is the spec of {what}: pipeline {named} cannot be rendered from it")
    return PIPELINES[named or own]
