"""Findings about an image spec or a recipe: its lock, and whether its images can be booted in tests."""

from collections.abc import Iterator
from pathlib import Path

from steps.nodeimage.contract.boot_tests import UNBOOTED, why_not_booted
from workflows.app.images import recipes
from workflows.app.specs import sources
from workflows.nodeimage import recipe_resolution
from workflows.nodeimage.recipe_spec import KIND as RECIPE
from workflows.podimage.errors import BuildError
from workflows.spec import Issue
from workflows.spec.errors import Severity


def image_issues(path: Path) -> Iterator[Issue]:
    """Yield the findings about the lock of an image spec or recipe, and about an architecture that cannot be booted in tests.

    Raises SpecErrors for errors in the files themselves.
    """
    is_recipe = sources.kind_of(path) == RECIPE
    request = recipes.asked(str(path))
    chain = request.chain(by_name=is_recipe)
    if why := why_not_booted(chain.top.spec.name, chain.foundation.architecture):
        kind: Severity = "warning" if is_recipe else "error"
        yield Issue("booted", kind, "recipe", why, UNBOOTED, "images/recipes/README.md")
    try:
        if is_recipe:
            recipe_resolution.read_fitting_lock(request, chain)
        else:
            recipe_resolution.resolve(request)
    except BuildError as error:
        severity: Severity = "warning" if is_recipe else "error"  # each site may lock a recipe itself
        yield Issue("locked", severity, "lock", str(error), error.hint, "images/recipes/README.md")
