"""First steps with a shipped recipe: write a spec for it, or build it without one."""

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from workflows.cli import output
from workflows.engines.folders import NoStateFolder, StateFolder

if TYPE_CHECKING:
    from steps.nodeimage.contract.resolved_recipe import Recipe
    from workflows.nodeimage.image_spec import ImageSpec

SPEC = Path("image.yaml")
SUFFIXES = (".yaml", ".yml")
ASKED, LOCKED, PACKED = "image_standing", "image_lock", "image_assemble"
"""Stages: read the published tree, fetch packages, pack the image."""
RECIPE = "compute"
FOLDER = "recipes"
"""Folder of BRINGUP_HOME for the generated specs of recipes that are built by name."""


def begin(named: Path | None, *, force: bool, hint: str) -> None:
    """Write an image spec; `named` is a shipped recipe, or the file to write. No lock is written beside the spec.

    A shipped recipe's lock has the kernel of virtual machines, and versions that mirrors drop once newer ones come.
    """
    from workflows.nodeimage import recipe_chain, recipe_files
    from workflows.nodeimage.image_spec import load_image
    from workflows.spec.starter import image

    if named is not None and named.suffix not in SUFFIXES and str(named) not in recipe_files.shipped_names():
        near = difflib.get_close_matches(str(named), recipe_files.shipped_names(), n=1)
        meant = (
            f"did you mean {near[0]}?"
            if near
            else f"recipes are {', '.join(recipe_files.shipped_names())}; a file to write ends with .yaml"
        )
        raise typer.BadParameter(f"{named} is no shipped recipe: {meant}")
    recipe = str(named) if named is not None and str(named) in recipe_files.shipped_names() else RECIPE
    spec = SPEC if named is None or recipe == str(named) else named
    if spec.exists() and not force:
        raise typer.BadParameter(f"{spec} exists; {hint}")
    budget = recipe_chain.read(recipe, Path(), {}, by_name=True).top.spec.budget
    text = image(recipe, packed_mib=budget.squashfs_mib or 0)
    spec.write_text(text)
    lacking = recipe_chain.lacking(recipe, Path(), load_image(text).variables)
    values = f" and give variables a value for {' and '.join(lacking)}," if lacking else ","
    output.lines([f"wrote {spec}; edit publish{values} then: bringup image lock {spec}, and bringup image build {spec}"])


def of_recipe(named: str) -> Path | None:
    """Return the generated spec, in BRINGUP_HOME, of a shipped recipe given by name; None for any other argument.

    Raises BuildError for a recipe whose packages each site locks itself.
    """
    from workflows.nodeimage import recipe_chain as chain
    from workflows.nodeimage import recipe_files as shipped
    from workflows.podimage.errors import BuildError
    from workflows.spec.starter import image

    if Path(named).is_file() or named not in shipped.shipped_names():
        return None
    if not (shipped.RECIPES / f"{named}{chain.LOCK_SUFFIX}").exists():
        raise BuildError(f"recipe {named} comes without a lock", hint=f"a spec has one of its own: bringup init --image {named}")
    path = StateFolder.of_environment().root / FOLDER / f"{named}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = image(named, own_lock=False)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def relock(path: Path, spec: "ImageSpec") -> str:
    """Return how to make a spec's lock anew, for builds whose locked versions mirrors have dropped.

    The sentence names the spec without its folder, because it is part of the plan, which is the same wherever the spec lies.
    """
    from workflows.nodeimage import recipe_files as shipped

    if _is_of_recipe(path):
        return f"write a spec with a lock of your own: bringup init --image {spec.recipe}, then bringup image lock {SPEC}"
    again = f"bringup image lock {path.name}"
    if not spec.lock and spec.recipe in shipped.shipped_names():
        return f"add lock: {spec.recipe}.lock.json to {path.name}, then {again}"
    return f"lock anew: {again}"


def _is_of_recipe(path: Path) -> bool:
    """Return True if `of_recipe` wrote the spec. Without a BRINGUP_HOME none is: planning and rendering work without one."""
    try:
        return path.parent == StateFolder.of_environment().root / FOLDER
    except NoStateFolder:
        return False


def require_stage(until: str) -> None:
    """Raise BadParameter for an unknown stage of an image."""
    if not until:
        return
    from workflows.stages import IMAGE_ORDER

    if until not in IMAGE_ORDER:
        near = difflib.get_close_matches(until, IMAGE_ORDER, n=1, cutoff=0.7)
        meant = f"did you mean {near[0]}?" if near else f"stages are {', '.join(IMAGE_ORDER)}"
        raise typer.BadParameter(f"--until {until}: an image has no such stage; {meant}")


def require_namespaces(until: str) -> None:
    """Raise BadTask if this user cannot build in a mount namespace, before packages are fetched."""
    from steps.nodeimage.containment import id_ranges

    if until not in (ASKED, LOCKED):
        id_ranges.choose()


def say_where(recipe: "Recipe", until: str, *, shipped: bool) -> None:
    """Print the folder of an image that was built but not published. `shipped`: its recipe was named without a spec.

    Nothing is printed if the run ended before its files were packed: the folder then holds an earlier run's files.
    """
    from steps.nodeimage.contract import build_keys
    from workflows.stages import IMAGE_ORDER

    if IMAGE_ORDER.index(until) < IMAGE_ORDER.index(PACKED):
        return
    folder = StateFolder.of_environment().store / "images/assembled" / build_keys.image(recipe)
    published = f"; bringup init --image {recipe.name} writes a spec that says where to" if shipped else ""
    output.lines([f"image    {folder}", f"nothing is published{published}"])
