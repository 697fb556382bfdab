"""The images of pods, step image and builder image: build one from a checkout of bringup, or lock it again."""

from collections.abc import Callable
from pathlib import Path

from workflows.podimage import pod_locks, pod_recipe
from workflows.podimage.downloads import Cache, default_cache_folder
from workflows.podimage.step_image import BuiltImage, StepImageBuild

CHECKOUT = Path(__file__).parents[3]
"""The checkout that this command comes from."""


def build(checkout: Path, out: Path, name: str, say: Callable[[str], None], *, builder: bool) -> BuiltImage:
    """Write the step image, or with `builder` the builder image, to the OCI archive `out`; `say` gets a line for each new layer."""
    return StepImageBuild(checkout, Cache(default_cache_folder()), say, builder=builder).write(out, name)


def lock(checkout: Path, *, builder: bool) -> tuple[Path, int, int]:
    """Lock an image of pods again in a checkout; return its folder there, and the numbers of packages and wheels."""
    make, folder = (pod_locks.lock_builder, pod_recipe.BUILDER) if builder else (pod_locks.lock, pod_recipe.STEP)
    return folder, *make(checkout, Cache(default_cache_folder()))
