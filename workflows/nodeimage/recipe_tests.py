"""Tests of an image: those of its recipe, and those that follow from the recipe's packages, services and budget."""

from collections.abc import Iterator

from steps.nodeimage.contract.image_tests import BuiltinCheck, ImageTest, Where
from workflows.nodeimage.recipe_chain import Chain
from workflows.nodeimage.recipe_spec import RecipeTest


def image_tests(found: Chain) -> tuple[ImageTest, ...]:
    """Return all tests, derived ones first; a recipe's own test replaces a derived one of its name."""
    own = {test.name: _test(test) for _, layer in found.layers for test in layer.tests}
    following = {test.name: test for test in _following(found)}
    return tuple((following | own).values())


def _test(test: RecipeTest) -> ImageTest:
    return ImageTest(
        name=test.name,
        incident=test.incident,
        run=test.run or "",
        check=test.check or "",
        arguments=test.arguments,
        where=Where(test.where),
        seconds=float(test.seconds),
        next_step=test.next_step,
    )


def _following(found: Chain) -> Iterator[ImageTest]:
    states = {unit: state for _, layer in found.layers for unit, state in layer.services.states.items()}
    if enabled := tuple(unit for unit, state in states.items() if state == "enabled"):
        yield ImageTest(
            name="recipe_services_enabled",
            incident="A unit was renamed by its package, enabling it did nothing, and nodes came up without it.",
            check=BuiltinCheck.SERVICES_ENABLED,
            arguments=enabled,
            next_step="look up the unit's name in the package of this release, and correct it in the recipe",
        )
    if asked := tuple(dict.fromkeys(name for _, layer in found.layers for name in layer.packages)):
        yield ImageTest(
            name="recipe_packages_installed",
            incident="A package was left half configured by a failing script, and its library was missing on every node.",
            check=BuiltinCheck.PACKAGES_PRESENT,
            arguments=asked,
            next_step="read what the package's script said while its layer was built",
        )
    budget = next((part.spec.budget.root_mib for part in reversed(found.parts) if part.spec.budget.root_mib), None)
    if budget is not None:
        yield ImageTest(
            name="root_size",
            incident="A package with a documentation tree doubled the image, and nodes with little memory ran out of it.",
            check=BuiltinCheck.SIZE_BUDGET,
            arguments=(str(budget),),
            next_step="see which packages grew (bringup image diff), and take them out or raise budget.root_mib",
        )
