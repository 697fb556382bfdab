"""First steps with a shipped recipe: write a spec for it, or build it without one."""

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
ASKED, LOCKED, PACKED = "image_standing", "image_lock", "image_assemble"
"""Stages: read the published tree, fetch packages, pack the image."""
RECIPE = "compute"
FOLDER = "recipes"
"""Folder of BRINGUP_HOME for the generated specs of recipes that are built by name."""


def write_spec(named: Path | None, *, force: bool, hint: str) -> str:
    """Write an image spec and return what to do next; `named` is a shipped recipe, or the file to write.

    No lock is written beside the spec. A shipped recipe's lock has the kernel of virtual machines, and versions that mirrors drop
    once newer ones come.
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
    """Return the generated spec, in BRINGUP_HOME, of a shipped recipe given by name; None for any other argument.

    Raises BuildError for a recipe whose packages each site locks itself.
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
    """Return how to make a spec's lock anew, for builds whose locked versions mirrors have dropped.

    The sentence names the spec without its folder, because it is part of the plan, which is the same wherever the spec lies.
    """
    if _is_of_recipe(path):
        return f"write a spec with a lock of your own: bringup init --image {spec.recipe}, then bringup image lock {SPEC}"
    again = f"bringup image lock {path.name}"
    if not spec.lock and spec.recipe in recipe_files.shipped_names():
        return f"add lock: {spec.recipe}.lock.json to {path.name}, then {again}"
    return f"lock anew: {again}"


def _is_of_recipe(path: Path) -> bool:
    """Return True if `of_recipe` wrote the spec. Without a BRINGUP_HOME none is: planning and rendering work without one."""
    try:
        return path.parent == StateFolder.of_environment().root / FOLDER
    except NoStateFolder:
        return False


def require_stage(until: str) -> None:
    """Raise UsageError for an unknown stage of an image."""
    if until and until not in IMAGE_ORDER:
        near = difflib.get_close_matches(until, IMAGE_ORDER, n=1, cutoff=0.7)
        meant = f"did you mean {near[0]}?" if near else f"stages are {', '.join(IMAGE_ORDER)}"
        raise UsageError(f"--until {until}: an image has no such stage; {meant}")


def unpublished(recipe: Recipe, until: str, *, shipped: bool) -> list[str]:
    """Return lines about the folder of an image that was built but not published. `shipped`: its recipe was named without a spec.

    There are no lines if the run ended before its files were packed: the folder then holds an earlier run's files.
    """
    if IMAGE_ORDER.index(until) < IMAGE_ORDER.index(PACKED):
        return []
    folder = StateFolder.of_environment().store / "images/assembled" / build_keys.image(recipe)
    published = f"; bringup init --image {recipe.name} writes a spec that says where to" if shipped else ""
    return [f"image    {folder}", f"nothing is published{published}"]
