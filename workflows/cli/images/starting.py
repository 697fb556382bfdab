"""The first steps with a shipped recipe: a spec of one's own for it, or a build of it without any."""

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from workflows.cli import output
from workflows.engines.folders import Home, NoHome

if TYPE_CHECKING:
    from steps.contract.image.recipe import Recipe
    from workflows.spec.image import ImageSpec

SPEC = Path("image.yaml")
SUFFIXES = (".yaml", ".yml")
ASKED, LOCKED, PACKED = "image_standing", "image_lock", "image_assemble"
"""Stages: the published tree is asked; packages are fetched; the image is packed."""
RECIPE = "compute"
FOLDER = "recipes"
"""Folder of the home for runs with the specs of recipes that are built by their name."""


def begin(named: Path | None, *, force: bool, hint: str) -> None:
    """Write an image spec; `named` is a shipped recipe, or the file to write. No lock lies beside it: that of the recipe has the
    kernel of virtual machines, and versions that mirrors drop as newer ones come."""
    from workflows.images.nodes import chain, shipped
    from workflows.spec.image import load_image
    from workflows.spec.starter import image

    if named is not None and named.suffix not in SUFFIXES and str(named) not in shipped.names():
        near = difflib.get_close_matches(str(named), shipped.names(), n=1)
        meant = f"did you mean {near[0]}?" if near else f"recipes are {', '.join(shipped.names())}; a file to write ends with .yaml"
        raise typer.BadParameter(f"{named} is no shipped recipe: {meant}")
    recipe = str(named) if named is not None and str(named) in shipped.names() else RECIPE
    spec = SPEC if named is None or recipe == str(named) else named
    if spec.exists() and not force:
        raise typer.BadParameter(f"{spec} exists; {hint}")
    budget = chain.read(recipe, Path(), {}, by_name=True).top.spec.budget
    text = image(recipe, packed_mib=budget.squashfs_mib or 0)
    spec.write_text(text)
    lacking = chain.lacking(recipe, Path(), load_image(text).variables)
    values = f" and give variables a value for {' and '.join(lacking)}," if lacking else ","
    output.lines([f"wrote {spec}; edit publish{values} then: bringup image lock {spec}, and bringup image build {spec}"])


def of_recipe(named: str) -> Path | None:
    """The spec of a shipped recipe that is named instead of a file: it lies in the home for runs. None for anything else.

    Raises BuildError for a recipe whose packages each site locks itself.
    """
    from workflows.images.errors import BuildError
    from workflows.images.nodes import chain, shipped
    from workflows.spec.starter import image

    if Path(named).is_file() or named not in shipped.names():
        return None
    if not (shipped.RECIPES / f"{named}{chain.LOCK_SUFFIX}").exists():
        raise BuildError(f"recipe {named} comes without a lock", hint=f"a spec has one of its own: bringup init --image {named}")
    path = Home.of_environment().root / FOLDER / f"{named}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = image(named, own_lock=False)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def relock(path: Path, spec: "ImageSpec") -> str:
    """How the lock of a spec is made anew, for who builds from one whose versions mirrors have dropped. The spec is named without
    its folder: the plan, which says this, is the same wherever it lies."""
    from workflows.images.nodes import shipped

    if _is_of_recipe(path):
        return f"write a spec with a lock of your own: bringup init --image {spec.recipe}, then bringup image lock {SPEC}"
    again = f"bringup image lock {path.name}"
    if not spec.lock and spec.recipe in shipped.names():
        return f"add lock: {spec.recipe}.lock.json to {path.name}, then {again}"
    return f"lock anew: {again}"


def _is_of_recipe(path: Path) -> bool:
    """Whether a spec is one that `of_recipe` wrote: none is where there is no home, which a plan or a rendering needs not."""
    try:
        return path.parent == Home.of_environment().root / FOLDER
    except NoHome:
        return False


def require_stage(until: str) -> None:
    """Raise BadParameter for what is no stage of an image."""
    if not until:
        return
    from workflows.stages import IMAGE_ORDER

    if until not in IMAGE_ORDER:
        near = difflib.get_close_matches(until, IMAGE_ORDER, n=1, cutoff=0.7)
        meant = f"did you mean {near[0]}?" if near else f"stages are {', '.join(IMAGE_ORDER)}"
        raise typer.BadParameter(f"--until {until}: an image has no such stage; {meant}")


def require_namespaces(until: str) -> None:
    """Raise BadTask where this user cannot build in a mount namespace, before packages are fetched for it."""
    from steps.clients.image.contained import identities

    if until not in (ASKED, LOCKED):
        identities.choose()


def say_where(recipe: "Recipe", until: str, *, shipped: bool) -> None:
    """Where an image lies that is built and not published; `shipped`: its recipe was named alone, without a spec. Nothing where
    the run ended before its files were packed: what lies there is an earlier run's."""
    from steps.contract.image import keys
    from workflows.stages import IMAGE_ORDER

    if IMAGE_ORDER.index(until) < IMAGE_ORDER.index(PACKED):
        return
    folder = Home.of_environment().store / "images/assembled" / keys.image(recipe)
    published = f"; bringup init --image {recipe.name} writes a spec that says where to" if shipped else ""
    output.lines([f"image    {folder}", f"nothing is published{published}"])
