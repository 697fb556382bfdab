"""The command `bringup image build`: a recipe becomes a published image, unless nothing has changed."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo.options import LOCAL, placed
from workflows.cli.images import specs
from workflows.cli.images import starting as image_starting
from workflows.cli.runs import starting
from workflows.cli.specs import pipelines

if TYPE_CHECKING:
    from steps.nodeimage.contract.resolved_recipe import Recipe
    from workflows.plan.model import Plan

PUBLISHED = "image_publish"
"""The last stage, `spec.image.PUBLISHED`, repeated here because that module takes longer to import."""
TESTED = "image_boot"
Spec = Annotated[
    str, typer.Argument(metavar="SPEC|RECIPE", help="Image spec (image.yaml), or a shipped recipe, to build and test it alone.")
]


@dataclass(frozen=True, kw_only=True)
class Place(starting.Place):
    """Options of a build; on Argo its pods use two images."""

    builder: Annotated[
        str, typer.Option("--builder-image", help="The image of pods that build, with argo; or BRINGUP_BUILDER_IMAGE.")
    ] = ""


def register(image: typer.Typer) -> None:
    """Add the command."""
    image.command(name="build")(placed(build, Place))


def build(
    spec: Spec = "image.yaml",
    until: Annotated[str, typer.Option("--until", help="Up to and with this stage.")] = "",
    reuse: Annotated[str, typer.Option("--reuse", help="Reuse boots that this earlier run showed of the same image.")] = "none",
    again: Annotated[
        bool,
        typer.Option("--again", help="Also where nothing changed, a rollback left this version, or the tree was made anew."),
    ] = False,
    supersede: Annotated[bool, typer.Option("--supersede", help="End builds of the same image that go on.")] = False,
    *,
    place: Place,
) -> int:
    """Build what has changed, test it in a sandbox and by PXE boots, and publish it. If nothing has changed, write nothing."""
    image_starting.require_stage(until)
    shipped = image_starting.of_recipe(spec)
    if shipped is not None:
        spec, until = str(shipped), _without_place(spec, until)
    path, loaded = pipelines.IMAGE.read(spec)
    publishes = until in ("", PUBLISHED)
    resolved = specs.check(path, loaded, specs.lacking(loaded, place.engine) if publishes else None)
    # on Argo the first stage asks the tree, which this machine may not reach
    if not again and not until and place.engine == LOCAL and (version := _published(path, loaded, resolved.recipe)):
        output.lines([f"nothing changed: {version} of {loaded.name} is published from this recipe, lock and settings"])
        return _told(place, loaded.name, f"{version} is published")
    wish = pipelines.Wish(reuse=reuse, until=until, again=again, supersede=supersede)
    pipeline = pipelines.of_image(path, loaded, resolved)
    if shipped is not None and (run := _tested(place, wish, pipeline.plan(path, loaded, wish), resolved.recipe)):
        output.lines([f"nothing changed: {loaded.name} was built from this recipe and lock, and passed its tests in run {run}"])
        image_starting.say_where(resolved.recipe, until, shipped=True)
        return _told(place, loaded.name, f"passed its tests in run {run}")
    if publishes and place.engine == LOCAL:
        specs.require_writable(loaded, resolved.recipe)
    if place.engine == LOCAL:
        image_starting.require_namespaces(until)
    code = starting.start(spec, place, wish, pipeline)
    if not publishes and place.engine == LOCAL and code == ExitCode.OK:
        image_starting.say_where(resolved.recipe, until, shipped=shipped is not None)
    return code


def _without_place(recipe: str, until: str) -> str:
    """Return the last stage for a recipe without a spec: the end of its tests. Raises BadParameter for a stage that needs
    a tree.
    """
    if until in (image_starting.ASKED, PUBLISHED):
        raise typer.BadParameter(
            f"recipe {recipe} has no place to be published to: bringup init --image {recipe} writes a spec for it"
        )
    return until or TESTED


def _published(path: Path, loaded: Any, recipe: "Recipe") -> str:
    """Return the version that is published from exactly this spec and recipe; empty if there is none.

    The result is empty too if the tree cannot be read from here: the run itself then reports why.
    """
    from steps.nodeimage.contract import build_keys
    from steps.nodeimage.publishing import publication_status
    from workflows.nodeimage.image_plan import place

    target, image_key = place(loaded), (recipe.name, build_keys.image(recipe), loaded.boot.firmware)
    if not target.host:
        return publication_status.current_version(target, *image_key)
    from steps.errors import StepError
    from workflows.cli.images import trees
    from workflows.engines.run_inputs import SecretMissing

    try:
        with trees.opened(str(path)) as opened_tree:
            return publication_status.current_version_through(opened_tree.transport, target, *image_key)
    except (StepError, SecretMissing):
        return ""


def _tested(place: starting.Place, wish: pipelines.Wish, plan: "Plan", recipe: "Recipe") -> str:
    """Return the run of this machine that built and booted exactly this image; empty if there is none or options ask for more."""
    from workflows.cli.images import tested

    is_asked = wish.again or wish.reuse != "none" or wish.until != TESTED or place.engine != LOCAL
    return "" if is_asked else tested.by_run(plan, recipe)


def _told(place: starting.Place, name: str, said: str) -> int:
    """Write the report for CI servers, if one is wanted: one case that passed."""
    if place.junit is None:
        return ExitCode.OK
    from workflows.cli.runs import reporting

    return reporting.keep_nothing_changed(place.junit, name, said)
