"""Make locks, layer by layer: the newest packages of a recipe's repositories, with their dependencies."""

import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec.structs import replace

from steps.nodeimage.contract.resolved_recipe import Package
from workflows.nodeimage import lockfile, package_resolution
from workflows.nodeimage.lock_update import KeptLock, PackageDownload
from workflows.nodeimage.lockfile import Lock, LockedLayer
from workflows.nodeimage.package_resolution import NamedRepository
from workflows.nodeimage.recipe_chain import Chain
from workflows.nodeimage.recipe_resolution import RecipeRequest, wanted_packages
from workflows.podimage.errors import BuildError


def create_lock(request: RecipeRequest, kept: KeptLock = KeptLock()) -> Lock:
    """Return a lock with the newest packages of the recipe's repositories, or where possible the versions that `kept` holds.

    Raises SpecErrors, BuildError, FetchError.
    """
    chain = request.chain()
    repositories = request.sources(chain)
    for repository in repositories:
        if not Path(repository.source.keyring).is_file():
            raise BuildError(
                f"{repository.source.keyring}, the key of {repository.source.url}, is not on this machine",
                hint=f"{package_resolution.keyring_hint(repository.source.keyring)}, or put it beside the recipe and name it there",
            )
    wanted_by_layer = [wanted_packages(layer, chain) for _, layer in chain.layers]
    with tempfile.TemporaryDirectory(prefix="bringup-apt-") as folder:
        packages_by_layer = package_resolution.resolve(chain.foundation, repositories, wanted_by_layer, Path(folder), kept)
    layers = zip((layer for _, layer in chain.layers), packages_by_layer, strict=True)
    return Lock(
        recipe=chain.top.spec.name,
        distribution=chain.foundation.distribution,
        release=chain.foundation.release,
        architecture=chain.foundation.architecture,
        sources=tuple(repo.name for repo in repositories),
        layers=tuple(LockedLayer(name=layer.name, packages=tuple(packages)) for layer, packages in layers),
    )


def update_lock(request: RecipeRequest, old: Lock, download: PackageDownload, only: Collection[str] = ()) -> Lock:
    """Return a lock that fits the changed recipe and moves as few packages of the lock `old` as possible.

    Layers below the first changed one stay. Above them every package keeps its version if it can; packages of `only` move to the
    newest. `download` fetches packages that repositories no longer have. Raises SpecErrors, BuildError, FetchError.
    """
    chain = request.chain()
    repositories = request.sources(chain)
    if unknown := sorted(set(only) - old.packages.keys()):
        raise BuildError(f"the lock {request.lock_path(chain).name} has no {', '.join(unknown)}", hint="name packages that it has")
    foundation = chain.foundation
    if (foundation.distribution, foundation.release, foundation.architecture) != (old.distribution, old.release, old.architecture):
        return create_lock(request)
    unchanged = _count_unchanged_layers(chain, repositories, old, only)
    layers = tuple(LockedLayer(name=layer.name, packages=layer.packages) for layer in old.layers[:unchanged])
    if unchanged == len(chain.layers):
        return replace(old, recipe=chain.top.spec.name, sources=tuple(repo.name for repo in repositories), layers=layers)
    kept = KeptLock(
        layers=tuple(layer.packages for layer in layers),
        packages=tuple(package for package in _renumbered_packages(old, repositories) if package.name not in only),
        update_command=f"{request.command.replace(' image lock', ' image update', 1)} --write",
        download=download,
    )
    return create_lock(request, kept)


def _renumbered_packages(old: Lock, repositories: tuple[NamedRepository, ...]) -> Iterator[Package]:
    """Yield the packages of a lock whose repositories still exist, with `source` as the repository's number in the new lock."""
    repository_numbers = {repo.name: index for index, repo in enumerate(repositories)}
    for package in old.packages.values():
        name = old.sources[package.source] if package.source < len(old.sources) else ""
        if name in repository_numbers:
            yield replace(package, source=repository_numbers[name])


def _count_unchanged_layers(chain: Chain, repositories: tuple[NamedRepository, ...], old: Lock, only: Collection[str]) -> int:
    """Return how many layers, from the lowest, are unchanged: they ask for their locked packages, from the same repositories."""
    lower: set[str] = set()
    for index, (_, layer) in enumerate(chain.layers):
        if index == len(old.layers) or old.layers[index].name != layer.name:
            return index
        locked = old.layers[index].packages
        usable = tuple(repo.name for repo in repositories if repo.layer <= index)
        same_packages = {package.name for package in locked if package.asked} == set(wanted_packages(layer, chain)) - lower
        same_sources = usable == old.sources[: len(usable)] and all(package.source < len(usable) for package in locked)
        lower |= {package.name for package in locked}
        if not (same_packages and same_sources) or any(package.name in only for package in locked):
            return index
    return len(chain.layers)


def write(lock: Lock, path: Path) -> bool:
    """Write a lock file atomically; return False, without writing, if it has this content already."""
    new_text = lockfile.text(lock)
    if path.exists() and path.read_text() == new_text:
        return False
    temporary_path = path.with_name(f".{path.name}.new")
    temporary_path.write_text(new_text)
    temporary_path.replace(path)
    return True
