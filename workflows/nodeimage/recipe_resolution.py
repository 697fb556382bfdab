"""Resolution of recipe, lock and variables into the resolved recipe of the builder, with its files as bytes;
reads, never writes.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import msgspec

from steps.nodeimage.contract.resolved_recipe import (
    LayerCommand,
    LayerService,
    LayerUser,
    Package,
    PlacedFile,
    Recipe,
    ResolvedLayer,
)
from workflows.nodeimage import lockfile, node_agent, package_resolution, recipe_chain, recipe_files, recipe_tests
from workflows.nodeimage.image_spec import ImageSpec
from workflows.nodeimage.lockfile import Lock
from workflows.nodeimage.package_resolution import NamedRepository
from workflows.nodeimage.recipe_chain import Chain, RecipePart
from workflows.nodeimage.recipe_spec import RecipeFile, RecipeLayer
from workflows.podimage.errors import BuildError
from workflows.spec.errors import SpecError, SpecErrors
from workflows.spec.validation_errors import line_of

_FOLDER_MODE, _FILE_MODE = "0755", "0644"


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Inputs of a build: the recipe, and its own files by the sha256 of their bytes (64 hex digits)."""

    recipe: Recipe
    files: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True)
class RecipeRequest:
    """Recipe by name or path (relative to `folder`), with the settings of a spec. `lock` is relative too; `command` makes the lock
    anew.
    """

    recipe: str
    folder: Path
    variables: Mapping[str, str]
    lock: str = ""
    mirror: str = ""
    security_mirror: str = ""
    keyring: str = ""
    name: str = ""
    command: str = ""
    secrets: Collection[str] | None = None
    """Names of secrets that commands may ask for; None without a spec."""

    def chain(self, *, by_name: bool = False) -> Chain:
        """Read the recipe's files. Raises SpecErrors. `by_name`: see `recipe_chain.read`."""
        return recipe_chain.read(self.recipe, self.folder, self.variables, by_name=by_name, secrets=self.secrets)

    def lock_path(self, found: Chain) -> Path:
        """Path of the lock."""
        return self.folder / self.lock if self.lock else found.lock

    def sources(self, found: Chain) -> tuple[NamedRepository, ...]:
        """Repositories of the recipe."""
        layers = [(part.path.parent, layer) for part, layer in found.layers]
        own = package_resolution.Mirror(url=self.mirror, security=self.security_mirror, keyring=self.keyring)
        return package_resolution.sources(found.foundation, layers, own)


def spec_request(spec: ImageSpec, folder: Path, command: str = "") -> RecipeRequest:
    """Return the recipe that a spec asks for; `folder` is that of the spec."""
    return RecipeRequest(
        recipe=spec.recipe,
        folder=folder,
        variables=spec.variables,
        lock=spec.lock or "",
        mirror=spec.mirror or "",
        security_mirror=spec.security_mirror or "",
        keyring=str(folder / spec.mirror_keyring) if spec.mirror_keyring else "",
        name=spec.name,
        secrets=tuple(spec.secrets),
        command=command or "bringup image lock SPEC",
    )


def recipe_request(recipe: str, folder: Path, command: str = "") -> RecipeRequest:
    """Return a recipe without a spec."""
    return RecipeRequest(recipe=recipe, folder=folder, variables={}, command=command or f"bringup image lock {recipe}")


def resolve_spec(spec: ImageSpec, folder: Path) -> Resolved:
    """Resolve the recipe of a spec. Raises SpecErrors for the recipe, BuildError for its lock."""
    return resolve(spec_request(spec, folder))


def resolve(asked: RecipeRequest) -> Resolved:
    """Resolve a recipe and its lock.

    The result has neither keyrings, which lie in folders of this machine and sign only what a lock is made from, nor source
    versions: the image changes only if its bytes do. Raises SpecErrors for the recipe, BuildError for its lock.
    """
    found = asked.chain()
    lock, named = read_fitting_lock(asked, found), asked.sources(found)
    files: dict[str, bytes] = {}
    layers = _layers(found, lock, files)
    top = found.top.spec
    recipe = Recipe(
        name=asked.name or top.name,
        distribution=found.foundation.distribution,
        release=found.foundation.release,
        architecture=found.foundation.architecture,
        epoch=found.foundation.epoch,
        sources=tuple(msgspec.structs.replace(one.source, keyring="") for one in named),
        layers=layers,
        kernel=package_resolution.kernel(found.foundation.kernel, lock.packages.values()),
        # all of them: what a word says may depend on the one before it, and of two the last may be the one that holds
        kernel_arguments=tuple(word for _, layer in found.layers for word in layer.kernel_arguments),
        tests=recipe_tests.image_tests(found),
        budget_mib=next((part.spec.budget.squashfs_mib or 0 for part in reversed(found.parts) if part.spec.budget.squashfs_mib), 0),
    )
    if sum(len(data) for data in files.values()) > recipe_files.MOST:
        raise BuildError(f"the recipe's own files have more than {recipe_files.MOST} bytes", hint=recipe_files.FIX)
    return Resolved(recipe=recipe, files=files)


def read_fitting_lock(asked: RecipeRequest, found: Chain) -> Lock:
    """Return the lock, which fits the recipe. Raises BuildError with all differences in one sentence."""
    lock = lockfile.read(asked.lock_path(found), asked.command)
    if differences := list(_differences(found, lock, asked.sources(found))):
        raise BuildError(
            f"the lock {asked.lock_path(found).name} is older than the recipe {found.top.spec.name}: {'; '.join(differences)}",
            hint=f"lock it again, which moves only what it must: {asked.command}",
        )
    return lock


def _differences(found: Chain, lock: Lock, named: tuple[NamedRepository, ...]) -> Iterator[str]:
    ground = found.foundation
    here, there = (ground.distribution, ground.release, ground.architecture), (lock.distribution, lock.release, lock.architecture)
    if here != there:
        yield f"it is for {' '.join(there)}, the recipe for {' '.join(here)}"
    if (sources := tuple(one.name for one in named)) != lock.sources:
        odd = sorted(set(sources) ^ set(lock.sources)) or ["in another order"]
        yield f"its repositories are not those of the recipe ({', '.join(odd)})"
    names = tuple(layer.name for _, layer in found.layers)
    if names != (locked := tuple(one.name for one in lock.layers)):
        yield f"it has layers {', '.join(locked)}, the recipe {', '.join(names)}"
        return
    below: set[str] = set()
    for _, layer in found.layers:
        brought = lock.layer(layer.name)
        below |= {one.name for one in brought}
        if lacking := sorted(set(wanted_packages(layer, found)) - below):
            yield f"layer {layer.name} asks for {', '.join(lacking)}, which it lacks"
        if dropped := sorted({one.name for one in brought if one.asked} - set(wanted_packages(layer, found))):
            yield f"layer {layer.name} no longer asks for {', '.join(dropped)}, which it has"


def wanted_packages(layer: RecipeLayer, found: Chain) -> tuple[str, ...]:
    """Return the packages that a layer asks for; the lowest layer also asks for the kernel."""
    first = layer is found.layers[0][1]
    return tuple(dict.fromkeys([*([found.foundation.kernel] if first else []), *layer.packages]))


def _layers(found: Chain, lock: Lock, files: dict[str, bytes]) -> tuple[ResolvedLayer, ...]:
    errors: list[SpecError] = []
    layers = []
    for index, (part, layer) in enumerate(found.layers):
        placed = [_placed(part, layer, number, one, files, errors) for number, one in enumerate(layer.files)]
        services = [LayerService(unit=unit, state=state) for unit, state in layer.services.states.items()]
        if index == 0:  # what lets a booted node run its tests is part of every image
            placed = [*node_agent.files(files), *placed]
            services = [*node_agent.services(), *services]
        layers.append(_layer(layer, lock.layer(layer.name), tuple(placed), tuple(services)))
    if errors:
        raise SpecErrors(found.top.path.name, errors)
    return tuple(layers)


def _layer(
    layer: RecipeLayer, brought: tuple[Package, ...], files: tuple[PlacedFile, ...], services: tuple[LayerService, ...]
) -> ResolvedLayer:
    return ResolvedLayer(
        name=layer.name,
        packages=tuple(msgspec.structs.replace(one, source_version="") for one in brought),
        users=tuple(
            LayerUser(
                name=user.name,
                uid=user.uid,
                gid=user.uid if user.gid is None else user.gid,
                groups=user.groups,
                shell=user.shell,
                home=user.home or f"/home/{user.name}",
                keys=user.keys,
            )
            for user in layer.users
        ),
        files=files,
        commands=tuple(LayerCommand(run=one.run, secrets=one.secrets) for one in layer.commands),
        services=services,
        budget_mib=layer.budget_mib,
    )


def _placed(
    part: RecipePart, layer: RecipeLayer, number: int, one: RecipeFile, files: dict[str, bytes], errors: list[SpecError]
) -> PlacedFile:
    if one.link is not None:
        return PlacedFile(path=one.path, link=one.link, mode=0o777, uid=one.uid, gid=one.gid)
    data = one.content.encode() if one.content is not None else None
    if one.source is not None:
        try:
            data = recipe_files.read(part.path.parent, one.source)
        except recipe_files.CannotTake as error:
            place = f"layers[{part.spec.layers.index(layer)}].files[{number}].source"
            errors.append(replace(recipe_files.as_error(error, place, one.source), line=line_of(place, part.lines)))
    if data is None:
        return PlacedFile(path=one.path, mode=int(one.mode or _FOLDER_MODE, 8), uid=one.uid, gid=one.gid)
    key = sha256(data).hexdigest()
    files[key] = data
    return PlacedFile(path=one.path, sha256=key, mode=int(one.mode or _FILE_MODE, 8), uid=one.uid, gid=one.gid)
