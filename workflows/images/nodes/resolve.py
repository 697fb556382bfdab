"""Recipe + lock + variables → the resolved recipe that the builder is told, and its own files as bytes; reads, never writes."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import msgspec

from steps.contract.image.recipe import Command, Layer, Package, PlacedFile, Recipe, Service, User
from workflows.images.errors import BuildError
from workflows.images.nodes import booted, chain, lockfile, own_files, packages, tests
from workflows.images.nodes.chain import Chain, Part
from workflows.images.nodes.lockfile import Lock
from workflows.images.nodes.packages import Named
from workflows.spec.errors import SpecError, SpecErrors
from workflows.spec.image import ImageSpec
from workflows.spec.problems import line_of
from workflows.spec.recipe_layers import RecipeFile, RecipeLayer

_FOLDER_MODE, _FILE_MODE = "0755", "0644"


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """What a build needs: the recipe, and its own files by the sha256 of their bytes (64 hex digits)."""

    recipe: Recipe
    files: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked for: a recipe by name or path (relative to `folder`), and what a spec may say of it. `lock` is relative too;
    `command` makes the lock anew."""

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
    """Names of the secrets that commands may ask for; None where there is no spec to name any."""

    def chain(self, *, by_name: bool = False) -> Chain:
        """The recipe's files. Raises SpecErrors. `by_name`: see `chain.read`."""
        return chain.read(self.recipe, self.folder, self.variables, by_name=by_name, secrets=self.secrets)

    def lock_path(self, found: Chain) -> Path:
        """Where the lock lies."""
        return self.folder / self.lock if self.lock else found.lock

    def sources(self, found: Chain) -> tuple[Named, ...]:
        """The repositories of the recipe."""
        layers = [(part.path.parent, layer) for part, layer in found.layers]
        own = packages.Mirror(url=self.mirror, security=self.security_mirror, keyring=self.keyring)
        return packages.sources(found.foundation, layers, own)


def of_spec(spec: ImageSpec, folder: Path, command: str = "") -> Asked:
    """What a spec asks for; `folder` is that of the spec."""
    return Asked(
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


def of_recipe(recipe: str, folder: Path, command: str = "") -> Asked:
    """A recipe as it is, without a spec."""
    return Asked(recipe=recipe, folder=folder, variables={}, command=command or f"bringup image lock {recipe}")


def resolved(spec: ImageSpec, folder: Path) -> Resolved:
    """What a spec asks for, resolved. Raises SpecErrors for the recipe, BuildError for its lock."""
    return resolve(of_spec(spec, folder))


def resolve(asked: Asked) -> Resolved:
    """The resolved recipe, without keyrings, which sign what a lock is made from and lie in folders of this machine, and without
    versions of sources: an image is another one only where its bytes are. Raises SpecErrors for the recipe, BuildError for its
    lock."""
    found = asked.chain()
    lock, named = locked(asked, found), asked.sources(found)
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
        kernel=packages.kernel(found.foundation.kernel, lock.packages.values()),
        # all of them: what a word says may depend on the one before it, and of two the last may be the one that holds
        kernel_arguments=tuple(word for _, layer in found.layers for word in layer.kernel_arguments),
        tests=tests.of(found),
        budget_mib=next((part.spec.budget.squashfs_mib or 0 for part in reversed(found.parts) if part.spec.budget.squashfs_mib), 0),
    )
    if sum(len(data) for data in files.values()) > own_files.MOST:
        raise BuildError(f"the recipe's own files have more than {own_files.MOST} bytes", hint=own_files.FIX)
    return Resolved(recipe=recipe, files=files)


def locked(asked: Asked, found: Chain) -> Lock:
    """The lock, which fits the recipe as it stands. Raises BuildError with all that differs in one sentence."""
    lock = lockfile.read(asked.lock_path(found), asked.command)
    if differences := list(_differences(found, lock, asked.sources(found))):
        raise BuildError(
            f"the lock {asked.lock_path(found).name} is older than the recipe {found.top.spec.name}: {'; '.join(differences)}",
            hint=f"lock it again, which moves only what it must: {asked.command}",
        )
    return lock


def _differences(found: Chain, lock: Lock, named: tuple[Named, ...]) -> Iterator[str]:
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
        if lacking := sorted(set(wanted(layer, found)) - below):
            yield f"layer {layer.name} asks for {', '.join(lacking)}, which it lacks"
        if dropped := sorted({one.name for one in brought if one.asked} - set(wanted(layer, found))):
            yield f"layer {layer.name} no longer asks for {', '.join(dropped)}, which it has"


def wanted(layer: RecipeLayer, found: Chain) -> tuple[str, ...]:
    """The packages that a layer asks for; the lowest also for the kernel."""
    first = layer is found.layers[0][1]
    return tuple(dict.fromkeys([*([found.foundation.kernel] if first else []), *layer.packages]))


def _layers(found: Chain, lock: Lock, files: dict[str, bytes]) -> tuple[Layer, ...]:
    errors: list[SpecError] = []
    layers = []
    for index, (part, layer) in enumerate(found.layers):
        placed = [_placed(part, layer, number, one, files, errors) for number, one in enumerate(layer.files)]
        services = [Service(unit=unit, state=state) for unit, state in layer.services.states.items()]
        if index == 0:  # what lets a booted node run its tests is part of every image
            placed = [*booted.files(files), *placed]
            services = [*booted.services(), *services]
        layers.append(_layer(layer, lock.layer(layer.name), tuple(placed), tuple(services)))
    if errors:
        raise SpecErrors(found.top.path.name, errors)
    return tuple(layers)


def _layer(layer: RecipeLayer, brought: tuple[Package, ...], files: tuple[PlacedFile, ...], services: tuple[Service, ...]) -> Layer:
    return Layer(
        name=layer.name,
        packages=tuple(msgspec.structs.replace(one, source_version="") for one in brought),
        users=tuple(
            User(
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
        commands=tuple(Command(run=one.run, secrets=one.secrets) for one in layer.commands),
        services=services,
        budget_mib=layer.budget_mib,
    )


def _placed(
    part: Part, layer: RecipeLayer, number: int, one: RecipeFile, files: dict[str, bytes], errors: list[SpecError]
) -> PlacedFile:
    if one.link is not None:
        return PlacedFile(path=one.path, link=one.link, mode=0o777, uid=one.uid, gid=one.gid)
    data = one.content.encode() if one.content is not None else None
    if one.source is not None:
        try:
            data = own_files.read(part.path.parent, one.source)
        except own_files.CannotTake as error:
            place = f"layers[{part.spec.layers.index(layer)}].files[{number}].source"
            errors.append(replace(own_files.as_error(error, place, one.source), line=line_of(place, part.lines)))
    if data is None:
        return PlacedFile(path=one.path, mode=int(one.mode or _FOLDER_MODE, 8), uid=one.uid, gid=one.gid)
    key = sha256(data).hexdigest()
    files[key] = data
    return PlacedFile(path=one.path, sha256=key, mode=int(one.mode or _FILE_MODE, 8), uid=one.uid, gid=one.gid)
