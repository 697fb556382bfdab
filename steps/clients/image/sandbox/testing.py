"""Tests an image without booting it: all its sandbox tests, on its layers mounted read-only."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from steps import timeouts
from steps.clients.image.contained import namespace
from steps.clients.image.layer import layers
from steps.clients.image.sandbox import sandboxed
from steps.contract.image import keys
from steps.contract.image.recipe import Recipe
from steps.contract.image.testing import ImageTest
from steps.contract.stages.image_sandbox import Sandboxed
from steps.errors import StepError, Temporary

_PLAY: Final = "steps.clients.image.sandbox.sandboxed:play"


def run(images: Path, recipe: Recipe, say: Callable[[str], None]) -> Sandboxed:
    """Run the tests of a recipe that run in a sandbox. Raises BadTask where a layer is missing, Temporary after its time."""
    stack = layers.stack(images, recipe)
    found = on(stack, sandboxed.wanted(recipe.tests), keys.image(recipe))
    bad = sum(result.outcome != "pass" for result in found.results)
    say(f"tested {recipe.name}: {len(found.results) - bad} of {len(found.results)} tests passed in {found.seconds:.1f} s")
    return found


def on(stack: tuple[Path, ...], tests: tuple[ImageTest, ...], key: str) -> Sandboxed:
    """Run tests on a root of folders laid over one another, uppermost first."""
    begun = time.monotonic()
    longest = timeouts.IMAGE_SANDBOX + sum(test.seconds for test in tests)
    try:
        played = namespace.call(stack, _PLAY, sandboxed.Play(tests=tests), sandboxed.Played, seconds=longest)
    except Temporary:
        raise
    except StepError as error:
        return Sandboxed(key=key, problem=f"{error}; {error.hint}" if error.hint else str(error))
    taken = round(time.monotonic() - begun, 3)
    return Sandboxed(key=key, results=played.results, seconds=taken, problem=played.problem)
