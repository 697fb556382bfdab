"""Make the locks of the pod images: apt resolves the recipe's packages from nothing; uv and pip choose wheels of uv.lock."""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from workflows.podimage import apt_solver, downloads, pod_recipe
from workflows.podimage.downloads import Cache
from workflows.podimage.errors import BuildError
from workflows.podimage.pod_recipe import BUILDER, PACKAGES, STEP, WHEELS, Deb, PodRecipe, Wheel

MADE = "# Made by `bringup image step lock{option}` from {source}; review changes, do not edit.\n"


def lock(tree: Path, cache: Cache) -> tuple[int, int]:
    """Write both locks of the step image into a source tree; return the numbers of packages and wheels."""
    recipe = pod_recipe.read_recipe(tree)
    with cache.locked(), cache.scratch() as scratch:
        debs = _without(_resolved(recipe, recipe.debian.packages, scratch), recipe.debian.without)
        wheels = _wheels(recipe, recipe.wheels.group, tree, scratch, cache)
    _write(tree / STEP, "", recipe.wheels.group, debs, wheels)
    return len(debs), len(wheels)


def lock_builder(tree: Path, cache: Cache) -> tuple[int, int]:
    """Write the locks of the builder image, which add to the locked step image; return the numbers of packages and wheels."""
    step, more = pod_recipe.read(tree), pod_recipe.read_more(tree)
    pins = [f"{deb.name}={deb.version}" for deb in step.debs]
    with cache.locked(), cache.scratch() as scratch:
        resolved = _resolved(step.recipe, [*pins, *more.packages], scratch)
        wheels = _wheels(step.recipe, more.group, tree, scratch, cache) if more.group else []
    below = {deb.name for deb in step.debs}
    debs = _without([deb for deb in resolved if deb.name not in below], more.without)
    above = [wheel for wheel in wheels if wheel.name not in {locked.name for locked in step.wheels}]
    _write(tree / BUILDER, " --builder", more.group, debs, above)
    return len(debs), len(above)


def _write(folder: Path, option: str, group: str, debs: Iterable[Deb], wheels: Iterable[Wheel]) -> None:
    """Write the lock of the packages, and that of the wheels if there is a group of uv.lock."""
    lines = sorted(f"{deb.name}={deb.version} {deb.sha256} {deb.path}\n" for deb in debs)
    (folder / PACKAGES).write_text("".join([MADE.format(option=option, source="recipe.yaml"), *lines]))
    if group:
        lines = sorted(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels)
        (folder / WHEELS).write_text("".join([MADE.format(option=option, source=f"uv.lock, group {group}"), *lines]))


def _resolved(recipe: PodRecipe, packages: Sequence[str], folder: Path) -> list[Deb]:
    """Return the packages that apt would install on an empty machine."""
    debian = recipe.debian
    lines = [f"deb [signed-by={debian.keyring}] {debian.archive}/{repository}" for repository in debian.repositories]
    root = apt_solver.AptRoot(folder / "apt", recipe.architecture, lines)
    root.update()
    resolved = root.install(packages)
    return [Deb(deb.name, deb.version, deb.sha256, deb.url.removeprefix(f"{debian.archive}/")) for deb in resolved]


def _without(resolved: Iterable[Deb], without: Collection[str]) -> list[Deb]:
    """Return the packages without those that the recipe leaves out. Raises BuildError if nothing needs one of these any more."""
    debs = list(resolved)
    if strange := set(without) - {deb.name for deb in debs}:
        raise BuildError(
            f"the recipe leaves out {', '.join(sorted(strange))}, which nothing needs any more", hint="remove them there"
        )
    return [deb for deb in debs if deb.name not in without]


def _wheels(recipe: PodRecipe, group: str, tree: Path, folder: Path, cache: Cache) -> list[Wheel]:
    exported = folder / "requirements.txt"
    command = ["uv", "export", "--project", str(tree), "--frozen", "--quiet", "--only-group", group]
    done = downloads.run([*command, "--no-emit-project", "--no-annotate", "--no-header", "--output-file", str(exported)], "uv")
    if done.returncode != 0:
        raise BuildError(f"uv.lock: {done.stderr.strip()}")
    wheels = []
    for path in downloads.download_wheels(exported, recipe, folder / "wheels"):
        name, version = path.name.split("-")[:2]
        wheels.append(Wheel(re.sub(r"[-_.]+", "-", name).lower(), version, cache.add_package(path)))
    return wheels
