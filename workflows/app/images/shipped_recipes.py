"""Use of a shipped recipe: write an image spec for it, or build it by name without a spec."""

import difflib
from pathlib import Path

from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import Recipe
from workflows.app.run_options import UsageError
from workflows.app.specs.starter_files import write_starter
from workflows.engines.folders import NoStateFolder, StateFolder
from workflows.nodeimage import recipe_chain, recipe_files
from workflows.nodeimage.image_spec import ImageSpec, load_image
from workflows.podimage.errors import BuildError
from workflows.spec.starter import image as starter_spec
from workflows.stages import IMAGE_ORDER

SPEC = Path("image.yaml")
SUFFIXES = (".yaml", ".yml")
ASKED, LOCKED, PACKED = "image_status", "image_lock", "image_assemble"
"""Ids of stages of an image build: read the published tree, fetch the locked packages, pack the image."""
RECIPE = "compute"
FOLDER = "recipes"
"""Folder in BRINGUP_HOME for the specs that `of_recipe` generates."""


def write_spec(named: Path | None, *, force: bool, hint: str) -> str:
    """Write an image spec and return a sentence on what to do next; `named` is a shipped recipe, or the file to write.

    No lock is written beside the spec, because a shipped recipe's lock holds the kernel for virtual machines, and versions that
    mirrors drop once newer ones come.
    """
    shipped = recipe_files.shipped_names()
    if named is not None and named.suffix not in SUFFIXES and str(named) not in shipped:
        near = difflib.get_close_matches(str(named), shipped, n=1)
        meant = f"did you mean {near[0]}?" if near else f"recipes are {', '.join(shipped)}; a file to write ends with .yaml"
        raise UsageError(f"{named} is no shipped recipe: {meant}")
    recipe = str(named) if named is not None and str(named) in shipped else RECIPE
    spec = SPEC if named is None or recipe == str(named) else named
    if spec.exists() and not force:
        raise UsageError(f"{spec} exists; {hint}")
    budget = recipe_chain.read(recipe, Path(), {}, by_name=True).top.spec.budget
    text = starter_spec(recipe, packed_mib=budget.squashfs_mib or 0)
    files = write_starter(spec, text, "Image")
    lacking = recipe_chain.missing_values(recipe, Path(), load_image(text).variables)
    values = f" and give variables a value for {' and '.join(lacking)}," if lacking else ","
    return f"wrote {files}; edit publish{values} then: bringup image lock {spec}, and bringup image build {spec}"


def of_recipe(named: str) -> Path | None:
    """Write the spec of a shipped recipe into BRINGUP_HOME and return its path; None if `named` is a file or no shipped recipe.

    Raises BuildError for a recipe that has no lock, because each site locks its packages itself.
    """
    if Path(named).is_file() or named not in recipe_files.shipped_names():
        return None
    if not (recipe_files.RECIPES / f"{named}{recipe_chain.LOCK_SUFFIX}").exists():
        raise BuildError(f"recipe {named} comes without a lock", hint=f"a spec has one of its own: bringup init --image {named}")
    path = StateFolder.of_environment().root / FOLDER / f"{named}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = starter_spec(named, own_lock=False)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def relock(path: Path, spec: ImageSpec) -> str:
    """Return a sentence on how to lock a spec anew, for a build whose locked versions mirrors have dropped.

    The sentence names the spec without its folder, because it is part of the plan, which must not depend on where the spec lies.
    """
    if _is_of_recipe(path):
        return f"write a spec with a lock of your own: bringup init --image {spec.recipe}, then bringup image lock {SPEC}"
    again = f"bringup image lock {path.name}"
    if not spec.lock and spec.recipe in recipe_files.shipped_names():
        return f"add lock: {spec.recipe}.lock.json to {path.name}, then {again}"
    return f"lock anew: {again}"


def _is_of_recipe(path: Path) -> bool:
    """Return True if `of_recipe` wrote the spec; False if no BRINGUP_HOME can be found, as may be while planning or rendering."""
    try:
        return path.parent == StateFolder.of_environment().root / FOLDER
    except NoStateFolder:
        return False


def require_stage(until: str) -> None:
    """Raise UsageError if `until` is neither empty nor a stage of an image build."""
    if until and until not in IMAGE_ORDER:
        near = difflib.get_close_matches(until, IMAGE_ORDER, n=1, cutoff=0.7)
        meant = f"did you mean {near[0]}?" if near else f"stages are {', '.join(IMAGE_ORDER)}"
        raise UsageError(f"--until {until}: an image has no such stage; {meant}")


def unpublished(recipe: Recipe, until: str, *, shipped: bool) -> list[str]:
    """Return lines with the folder of an image that was built up to stage `until` and not published.

    `shipped` tells that the user named a recipe, not a spec. There are no lines if the run ended before its files were packed,
    because the folder then holds an earlier run's files.
    """
    if IMAGE_ORDER.index(until) < IMAGE_ORDER.index(PACKED):
        return []
    folder = StateFolder.of_environment().store / "images/assembled" / build_keys.image(recipe)
    published = f"; bringup init --image {recipe.name} writes a spec that says where to" if shipped else ""
    return [f"image    {folder}", f"nothing is published{published}"]
