"""Recipes of node images: find the one that an argument names, check its lock, and list the recipes of a folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.contract.plain_text import count
from steps.nodeimage.contract.boot_tests import UNBOOTED, why_not_booted
from workflows.app.images import image_specs
from workflows.app.run_options import UsageError
from workflows.app.specs import sources
from workflows.nodeimage import recipe_chain, recipe_files, recipe_resolution, recipe_spec
from workflows.nodeimage.image_spec import is_path
from workflows.nodeimage.lockfile import Lock
from workflows.nodeimage.recipe_resolution import RecipeRequest
from workflows.podimage.errors import BuildError
from workflows.spec import Issue, SpecErrors
from workflows.spec.errors import Severity

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, kw_only=True)
class ListedRecipe:
    """A row of `bringup image recipes`. If a recipe cannot be read, `problem` says why and only name and path are set besides."""

    name: str
    path: Path
    description: str = ""
    extends: str = ""
    layers: tuple[tuple[str, int], ...] = ()
    size: int = 0
    state: str = ""
    problem: str = ""

    def data(self) -> dict[str, Any]:
        """Return the row as a mapping for scripts."""
        layers = [{"name": name, "packages": packages} for name, packages in self.layers]
        facts = {"name": self.name, "path": str(self.path), "description": self.description, "extends": self.extends}
        return {**facts, "layers": layers, "download_bytes": self.size, "lock": self.state, "problem": self.problem}


def asked(named: str) -> RecipeRequest:
    """Return the request for the recipe that RECIPE|SPEC names: a shipped recipe, a recipe file, or an image spec's recipe.

    Raises NoSpec, SpecErrors.
    """
    if not is_path(named):
        return recipe_resolution.recipe_request(named, Path())
    path = sources.find_image(named)
    if sources.kind_of(path) == sources.IMAGE_SPEC:
        return image_specs.asked(path, image_specs.load(path))
    sources.refuse_kinds(path, image_specs.CLUSTER)
    return recipe_at(path, named)


def recipe_at(path: Path, named: str) -> RecipeRequest:
    """Return the request for the recipe file at `path`; hints in errors tell to lock `named`."""
    return recipe_resolution.recipe_request(path.name, path.parent, f"bringup image lock {named}")


def image_issues(path: Path) -> Iterator[Issue]:
    """Yield findings about an image spec or recipe: a missing or unfitting lock, an architecture that no test machine can boot.

    Raises SpecErrors for errors in the files themselves.
    """
    is_recipe = sources.kind_of(path) == recipe_spec.KIND
    severity: Severity = "warning" if is_recipe else "error"  # each site may lock a recipe itself
    request = asked(str(path))
    chain = request.chain(by_name=is_recipe)
    if why := why_not_booted(chain.top.spec.name, chain.foundation.architecture):
        yield Issue("booted", severity, "recipe", why, UNBOOTED, "images/recipes/README.md")
    try:
        if is_recipe:
            recipe_resolution.read_fitting_lock(request, chain)
        else:
            recipe_resolution.resolve(request)
    except BuildError as error:
        yield Issue("locked", severity, "lock", str(error), error.hint, "images/recipes/README.md")


def listed(folder: Path | None) -> list[ListedRecipe]:
    """Return a row for each recipe file in a folder, sorted by file name; without a folder, for each shipped recipe."""
    root = folder or recipe_files.RECIPES
    if not root.is_dir():
        raise UsageError(f"{root} is no folder")
    return [_row(path) for path in sorted(root.iterdir()) if path.suffix in SUFFIXES]


def _row(path: Path) -> ListedRecipe:
    request = recipe_at(path, str(path))
    try:
        chain = request.chain(by_name=True)
    except SpecErrors as errors:
        first = errors.errors[0]
        problem = ": ".join(filter(None, (first.path, first.problem)))
        return ListedRecipe(name=path.stem, path=path, problem=f"{problem} ({count(len(errors.errors), 'error')})")
    lock, state = _locked(request, chain)
    layers = tuple((layer.name, len(lock.layer(layer.name)) if lock else 0) for _, layer in chain.layers)
    spec = chain.top.spec
    size = sum(package.size for package in lock.packages.values()) if lock else 0
    return ListedRecipe(
        name=spec.name, path=path, description=spec.description, extends=spec.extends or "", layers=layers, size=size, state=state
    )


def _locked(request: RecipeRequest, chain: recipe_chain.Chain) -> tuple[Lock | None, str]:
    path = request.lock_path(chain)
    if not path.exists():
        return None, "none"
    try:
        return recipe_resolution.read_fitting_lock(request, chain), "fits"
    except BuildError as error:
        return None, f"unusable: {error}"
