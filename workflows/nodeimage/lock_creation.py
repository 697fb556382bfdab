"""Make locks, layer by layer: the newest packages of a recipe's repositories, with their dependencies."""

import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec.structs import replace

from steps.nodeimage.contract.resolved_recipe import Package
from workflows.nodeimage import lockfile, package_resolution
from workflows.nodeimage.lock_update import Bring, Keeping
from workflows.nodeimage.lockfile import Lock, LockedLayer
from workflows.nodeimage.package_resolution import NamedRepository
from workflows.nodeimage.recipe_chain import Chain
from workflows.nodeimage.recipe_resolution import RecipeRequest, wanted_packages
from workflows.podimage.errors import BuildError


def create_lock(asked: RecipeRequest, keeping: Keeping = Keeping()) -> Lock:
    """Return a lock with the newest packages of the recipe's repositories, or where possible the versions that `keeping` holds.

    Raises SpecErrors, BuildError, FetchError.
    """
    found = asked.chain()
    named = asked.sources(found)
    for one in named:
        if not Path(one.source.keyring).is_file():
            raise BuildError(
                f"{one.source.keyring}, the key of {one.source.url}, is not on this machine",
                hint=f"{package_resolution.brought_by(one.source.keyring)}, or put it beside the recipe and name it there",
            )
    asks = [wanted_packages(layer, found) for _, layer in found.layers]
    with tempfile.TemporaryDirectory(prefix="bringup-apt-") as folder:
        brought = package_resolution.resolve(found.foundation, named, asks, Path(folder), keeping)
    layers = zip((layer for _, layer in found.layers), brought, strict=True)
    return Lock(
        recipe=found.top.spec.name,
        distribution=found.foundation.distribution,
        release=found.foundation.release,
        architecture=found.foundation.architecture,
        sources=tuple(one.name for one in named),
        layers=tuple(LockedLayer(name=layer.name, packages=tuple(brought)) for layer, brought in layers),
    )


def update_lock(asked: RecipeRequest, before: Lock, bring: Bring, only: Collection[str] = ()) -> Lock:
    """Return a lock that fits the changed recipe and moves as few packages of the lock `before` as possible.

    Layers below the first changed one stay. Above them every package keeps its version if it can; packages of `only` move to the
    newest. `bring` downloads packages that repositories no longer have. Raises SpecErrors, BuildError, FetchError.
    """
    found = asked.chain()
    named = asked.sources(found)
    if unknown := sorted(set(only) - before.packages.keys()):
        raise BuildError(f"the lock {asked.lock_path(found).name} has no {', '.join(unknown)}", hint="name packages that it has")
    ground = found.foundation
    if (ground.distribution, ground.release, ground.architecture) != (before.distribution, before.release, before.architecture):
        return create_lock(asked)
    count = _alike(found, named, before, only)
    layers = tuple(LockedLayer(name=one.name, packages=one.packages) for one in before.layers[:count])
    if count == len(found.layers):
        return replace(before, recipe=found.top.spec.name, sources=tuple(one.name for one in named), layers=layers)
    keeping = Keeping(
        layers=tuple(one.packages for one in layers),
        packages=tuple(one for one in _placed(before, named) if one.name not in only),
        moving=f"{asked.command.replace(' image lock', ' image update', 1)} --write",
        bring=bring,
    )
    return create_lock(asked, keeping)


def _placed(before: Lock, named: tuple[NamedRepository, ...]) -> Iterator[Package]:
    """Yield the packages of a lock whose repositories still exist, with `source` as the repository's number in the new lock."""
    places = {one.name: index for index, one in enumerate(named)}
    for one in before.packages.values():
        name = before.sources[one.source] if one.source < len(before.sources) else ""
        if name in places:
            yield replace(one, source=places[name])


def _alike(found: Chain, named: tuple[NamedRepository, ...], before: Lock, only: Collection[str]) -> int:
    """Return how many layers, from the lowest, are unchanged: they ask for their locked packages, from the same repositories."""
    below: set[str] = set()
    for index, (_, layer) in enumerate(found.layers):
        if index == len(before.layers) or before.layers[index].name != layer.name:
            return index
        brought = before.layers[index].packages
        usable = tuple(one.name for one in named if one.layer <= index)
        asks = {one.name for one in brought if one.asked} == set(wanted_packages(layer, found)) - below
        comes = usable == before.sources[: len(usable)] and all(one.source < len(usable) for one in brought)
        below |= {one.name for one in brought}
        if not (asks and comes) or any(one.name in only for one in brought):
            return index
    return len(found.layers)


def write(lock: Lock, path: Path) -> bool:
    """Write a lock file atomically; return False, without writing, if it has this content already."""
    new = lockfile.text(lock)
    if path.exists() and path.read_text() == new:
        return False
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_text(new)
    unfinished.replace(path)
    return True
