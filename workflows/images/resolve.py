"""Makes the two locks: apt resolves the recipe's packages from nothing; uv and pip choose the wheels of uv.lock's group."""

import re
from collections.abc import Sequence
from pathlib import Path

from workflows.images import apt, fetch, recipe
from workflows.images.cache import Cache
from workflows.images.errors import BuildError
from workflows.images.recipe import FOLDER, PACKAGES, WHEELS, Deb, Recipe, Wheel

MADE = "# Made by `bringup image step lock` from {source}; review changes, do not edit.\n"


def lock(tree: Path, cache: Cache) -> tuple[int, int]:
    """Write both locks of a source tree; how many packages and wheels they name."""
    wanted = recipe.read_recipe(tree)
    with cache.locked(), cache.scratch() as scratch:
        debs = _debs(wanted, scratch)
        wheels = _wheels(wanted, tree, scratch, cache)
    _write(tree / FOLDER / PACKAGES, MADE.format(source="recipe.yaml"), [f"{d.name}={d.version} {d.sha256} {d.path}" for d in debs])
    pins = [f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}" for wheel in wheels]
    _write(tree / FOLDER / WHEELS, MADE.format(source=f"uv.lock, group {wanted.wheels.group}"), pins)
    return len(debs), len(wheels)


def _write(path: Path, head: str, lines: Sequence[str]) -> None:
    path.write_text(head + "".join(f"{line}\n" for line in sorted(lines)))


def _debs(wanted: Recipe, folder: Path) -> list[Deb]:
    """What apt would install on a machine that has nothing yet, less what the recipe leaves out."""
    debian = wanted.debian
    lines = [f"deb [signed-by={debian.keyring}] {debian.archive}/{one}" for one in debian.repositories]
    root = apt.Root(folder / "apt", wanted.architecture, lines)
    root.update()
    resolved = [
        Deb(one.name, one.version, one.sha256, one.url.removeprefix(f"{debian.archive}/")) for one in root.install(debian.packages)
    ]
    if strange := set(debian.without) - {deb.name for deb in resolved}:
        raise BuildError(
            f"the recipe leaves out {', '.join(sorted(strange))}, which nothing needs any more", hint="remove them there"
        )
    return [deb for deb in resolved if deb.name not in debian.without]


def _wheels(wanted: Recipe, tree: Path, folder: Path, cache: Cache) -> list[Wheel]:
    exported = folder / "requirements.txt"
    command = ["uv", "export", "--project", str(tree), "--frozen", "--quiet", "--only-group", wanted.wheels.group]
    done = fetch.run([*command, "--no-emit-project", "--no-annotate", "--no-header", "--output-file", str(exported)], "uv")
    if done.returncode != 0:
        raise BuildError(f"uv.lock: {done.stderr.strip()}")
    found = []
    for path in fetch.download_wheels(exported, wanted, folder / "wheels"):
        name, version = path.name.split("-")[:2]
        found.append(Wheel(re.sub(r"[-_.]+", "-", name).lower(), version, cache.add_package(path)))
    return found
