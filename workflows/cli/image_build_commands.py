"""Command `bringup image build`: a recipe becomes a published image, or nothing happens because nothing has changed."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output, pipelines, starting
from workflows.cli.argo_options import LOCAL, placed
from workflows.engines.folders import Home

IMAGE = "BRINGUP_IMAGE"
"""Names the image of all pods where no `--image` does (`compiling.IMAGE`, whose module takes long to import)."""
Spec = Annotated[str, typer.Argument(help="Image spec (image.yaml).")]


def register(image: typer.Typer) -> None:
    """Add the command."""
    image.command(name="build")(placed(build, starting.Place))


def build(
    spec: Spec = "image.yaml",
    until: Annotated[str, typer.Option("--until", help="Up to and with this stage.")] = "",
    reuse: Annotated[str, typer.Option("--reuse", help="Reuse boots that this earlier run showed of the same image.")] = "none",
    again: Annotated[bool, typer.Option("--again", help="Also where nothing changed, or a rollback left this version.")] = False,
    supersede: Annotated[bool, typer.Option("--supersede", help="End builds of the same image that go on.")] = False,
    *,
    place: starting.Place,
) -> int:
    """Build what changed, test it in a sandbox and by PXE boots, publish it. Where nothing changed, say so and write nothing."""
    path, loaded = pipelines.IMAGE.read(spec)
    _check_place(loaded, place)
    if not again and not until and place.engine == LOCAL and (version := _published(path, loaded)):
        output.lines([f"nothing changed: {version} of {loaded.name} is published from this recipe, lock and settings"])
        return _told(place, loaded.name, version)
    if supersede:
        _supersede(place, loaded.name)
    return starting.start(spec, place, pipelines.Wish(reuse=reuse, until=until, again=again), pipelines.IMAGE)


class NoPlace(ValueError):
    """There is nowhere to build or to publish to; better said now than after the boots."""


def _check_place(loaded: Any, place: starting.Place) -> None:
    """Raise NoPlace where the run could not build, or not reach the tree of the spec."""
    told = loaded.publish
    if place.engine != LOCAL and not (place.image or os.environ.get(IMAGE)):
        raise NoPlace("the step image has no programs that build images: name an image that has them, with --image")
    if told.ssh is not None:
        return
    if place.engine != LOCAL:
        raise NoPlace("publish.root is a folder of one machine, and pods have none of it: add publish.ssh, the boot server")
    if not Path(told.root).is_dir():
        raise NoPlace(f"publish.root {told.root} is no folder of this machine: make it, or mount what it should be")


def _published(path: Path, loaded: Any) -> str:
    """The version that is published from exactly this spec on a tree of this machine; empty where there is none."""
    from steps.clients.published import standing
    from steps.contract.image import keys
    from workflows.images.nodes import resolve
    from workflows.plan.images import place

    recipe = resolve.resolved(loaded, path.parent).recipe
    return standing.version(place(loaded), recipe.name, keys.image(recipe), loaded.boot.firmware)


def _told(place: starting.Place, name: str, version: str) -> int:
    """Write the report for CI servers, where one is wanted: one case that passed."""
    from workflows.cli import reporting

    return ExitCode.OK if place.junit is None else reporting.keep_nothing_changed(place.junit, name, version)


def _supersede(place: starting.Place, name: str) -> None:
    from workflows import image
    from workflows.cli import superseding

    if place.engine == LOCAL:
        superseding.here(Home.of_environment(), name, image.KIND)
    else:
        superseding.on_argo(place, name, image.KIND)
