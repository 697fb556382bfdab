"""Resolve recipe, lock and variables into the recipe that the builder gets, with its tests and the bytes of its files."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec
from pydantic import Field

from steps.nodeimage.contract.image_tests import BuiltinCheck, ImageTest, Where
from steps.nodeimage.contract.resolved_recipe import (
    LayerCommand,
    LayerService,
    LayerUser,
    Package,
    PlacedFile,
    Recipe,
    ResolvedLayer,
)
from workflows.nodeimage import lockfile, package_resolution, recipe_chain, recipe_files
from workflows.nodeimage.image_spec import ImageSpec
from workflows.nodeimage.lockfile import Lock
from workflows.nodeimage.package_resolution import NamedRepository
from workflows.nodeimage.recipe_chain import Chain, RecipePart
from workflows.nodeimage.recipe_spec import ImagePath, Mode, RecipeFile, RecipeLayer, RecipeTest, UnitName
from workflows.podimage.errors import BuildError
from workflows.spec.errors import SpecError, SpecErrors
from workflows.spec.fields import Listed, Section
from workflows.spec.parsing.loading import load_as
from workflows.spec.parsing.validation_errors import line_of
from workflows.spec.pipelines.pipeline_specs import RelativePath

_FOLDER_MODE, _FILE_MODE = "0755", "0644"


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The inputs of an image build: the resolved recipe, and its own files by the sha256 of their bytes (64 hex digits)."""

    recipe: Recipe
    files: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True)
class RecipeRequest:
    """A recipe by name or path, with the settings of a spec. Both `recipe` and `lock` are relative to `folder`.

    `command` is the command line that makes the lock, for hints.
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
        """Read the recipe with those that it extends. Raises SpecErrors.

        With `by_name`, variables without value are read as their names.
        """
        return recipe_chain.read(self.recipe, self.folder, self.variables, by_name=by_name, secrets=self.secrets)

    def lock_path(self, chain: Chain) -> Path:
        """Return the path of the lock file: the spec's, else the one beside the recipe."""
        return self.folder / self.lock if self.lock else chain.lock

    def sources(self, chain: Chain) -> tuple[NamedRepository, ...]:
        """Return the package repositories of the recipe."""
        layers = [(part.path.parent, layer) for part, layer in chain.layers]
        mirror = package_resolution.Mirror(url=self.mirror, security=self.security_mirror, keyring=self.keyring)
        return package_resolution.sources(chain.foundation, layers, mirror)


def spec_request(spec: ImageSpec, folder: Path, command: str = "") -> RecipeRequest:
    """Return the input for resolving the recipe that an image spec names, with the spec's variables, lock, mirrors and secrets.

    Relative paths start at `folder`, the spec's own; hints name `command` as the command that writes the recipe's lock.
    """
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
    """Return a request for a recipe that is used without an image spec."""
    return RecipeRequest(recipe=recipe, folder=folder, variables={}, command=command or f"bringup image lock {recipe}")


def resolve(request: RecipeRequest) -> Resolved:
    """Return the resolved recipe, with locked packages and own files. Raises SpecErrors for the recipe, BuildError for its lock.

    The result has neither keyrings, which lie in folders of this machine and sign only what a lock is made from, nor source
    versions, so that the image changes only if its bytes do.
    """
    chain = request.chain()
    lock, repositories = read_fitting_lock(request, chain), request.sources(chain)
    files: dict[str, bytes] = {}
    layers = _resolve_layers(chain, lock, files)
    recipe = Recipe(
        name=request.name or chain.top.spec.name,
        distribution=chain.foundation.distribution,
        release=chain.foundation.release,
        architecture=chain.foundation.architecture,
        epoch=chain.foundation.epoch,
        sources=tuple(msgspec.structs.replace(repository.source, keyring="") for repository in repositories),
        layers=layers,
        kernel=package_resolution.kernel(chain.foundation.kernel, lock.packages.values()),
        # all of them: what a word says may depend on the one before it, and of two the last may be the one that holds
        kernel_arguments=tuple(word for _, layer in chain.layers for word in layer.kernel_arguments),
        tests=image_tests(chain),
        budget_mib=next((part.spec.budget.squashfs_mib or 0 for part in reversed(chain.parts) if part.spec.budget.squashfs_mib), 0),
    )
    if sum(len(data) for data in files.values()) > recipe_files.MOST:
        raise BuildError(f"the recipe's own files have more than {recipe_files.MOST} bytes", hint=recipe_files.FIX)
    return Resolved(recipe=recipe, files=files)


def read_fitting_lock(request: RecipeRequest, chain: Chain) -> Lock:
    """Return a recipe's lock. Raises BuildError if it does not fit the recipe, with all differences in one sentence."""
    lock = lockfile.read(request.lock_path(chain), request.command)
    if differences := list(_differences(chain, lock, request.sources(chain))):
        raise BuildError(
            f"the lock {request.lock_path(chain).name} is older than the recipe {chain.top.spec.name}: {'; '.join(differences)}",
            hint=f"lock it again, which moves only what it must: {request.command}",
        )
    return lock


def _differences(chain: Chain, lock: Lock, repositories: tuple[NamedRepository, ...]) -> Iterator[str]:
    foundation = chain.foundation
    target = (foundation.distribution, foundation.release, foundation.architecture)
    lock_target = (lock.distribution, lock.release, lock.architecture)
    if target != lock_target:
        yield f"it is for {' '.join(lock_target)}, the recipe for {' '.join(target)}"
    if (sources := tuple(repository.name for repository in repositories)) != lock.sources:
        differing = sorted(set(sources) ^ set(lock.sources)) or ["in another order"]
        yield f"its repositories are not those of the recipe ({', '.join(differing)})"
    names = tuple(layer.name for _, layer in chain.layers)
    if names != (locked := tuple(layer.name for layer in lock.layers)):
        yield f"it has layers {', '.join(locked)}, the recipe {', '.join(names)}"
        return
    available: set[str] = set()
    for _, layer in chain.layers:
        packages = lock.layer(layer.name)
        available |= {package.name for package in packages}
        if missing := sorted(set(wanted_packages(layer, chain)) - available):
            yield f"layer {layer.name} asks for {', '.join(missing)}, which it lacks"
        if dropped := sorted({package.name for package in packages if package.asked} - set(wanted_packages(layer, chain))):
            yield f"layer {layer.name} no longer asks for {', '.join(dropped)}, which it has"


def wanted_packages(layer: RecipeLayer, chain: Chain) -> tuple[str, ...]:
    """Return the names of packages that a layer asks for; the lowest layer also asks for the kernel."""
    is_lowest = layer is chain.layers[0][1]
    return tuple(dict.fromkeys([*([chain.foundation.kernel] if is_lowest else []), *layer.packages]))


def _resolve_layers(chain: Chain, lock: Lock, files: dict[str, bytes]) -> tuple[ResolvedLayer, ...]:
    errors: list[SpecError] = []
    layers = []
    for index, (part, layer) in enumerate(chain.layers):
        placed_files = [_placed_file(part, layer, number, file, files, errors) for number, file in enumerate(layer.files)]
        services = [LayerService(unit=unit, state=state) for unit, state in layer.services.states.items()]
        if index == 0:  # what lets a booted node run its tests is part of every image
            agent = load_as(BootFiles, recipe_files.BOOT_FILES)
            placed_files = [*_agent_files(agent, files), *placed_files]
            services = [*(LayerService(unit=unit) for unit in agent.services), *services]
        layers.append(_resolve_layer(layer, lock.layer(layer.name), tuple(placed_files), tuple(services)))
    if errors:
        raise SpecErrors(chain.top.path.name, errors)
    return tuple(layers)


def _resolve_layer(
    layer: RecipeLayer, packages: tuple[Package, ...], files: tuple[PlacedFile, ...], services: tuple[LayerService, ...]
) -> ResolvedLayer:
    return ResolvedLayer(
        name=layer.name,
        packages=tuple(msgspec.structs.replace(package, source_version="") for package in packages),
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
        commands=tuple(LayerCommand(run=command.run, secrets=command.secrets) for command in layer.commands),
        services=services,
        budget_mib=layer.budget_mib,
    )


def _placed_file(
    part: RecipePart, layer: RecipeLayer, number: int, file: RecipeFile, files: dict[str, bytes], errors: list[SpecError]
) -> PlacedFile:
    if file.link is not None:
        return PlacedFile(path=file.path, link=file.link, mode=0o777, uid=file.uid, gid=file.gid)
    data = file.content.encode() if file.content is not None else None
    if file.source is not None:
        try:
            data = recipe_files.read(part.path.parent, file.source)
        except recipe_files.CannotTake as error:
            key_path = f"layers[{part.spec.layers.index(layer)}].files[{number}].source"
            errors.append(replace(recipe_files.as_error(error, key_path, file.source), line=line_of(key_path, part.lines)))
    if data is None:
        return PlacedFile(path=file.path, mode=int(file.mode or _FOLDER_MODE, 8), uid=file.uid, gid=file.gid)
    return PlacedFile(path=file.path, sha256=_store(data, files), mode=int(file.mode or _FILE_MODE, 8), uid=file.uid, gid=file.gid)


def _store(data: bytes, files: dict[str, bytes]) -> str:
    """Add a file's bytes to `files` under their sha256 digest, and return the digest."""
    digest = sha256(data).hexdigest()
    files[digest] = data
    return digest


# --- the node agent: files and services by which a booted node runs its tests and reports ---------------------------------------


class BootFile(Section):
    """A file of the node agent: its path in the image, and its source below `images/boot`."""

    path: ImagePath
    source: RelativePath
    mode: Mode = "0644"


class BootFiles(Section):
    """The content of `images/boot/files.yaml`: files and services of the node agent, by which booted nodes run tests and report."""

    files: Annotated[tuple[BootFile, ...], Listed, Field(min_length=1)]
    services: Annotated[tuple[UnitName, ...], Listed, Field(min_length=1)]


def _agent_files(agent: BootFiles, files: dict[str, bytes]) -> Iterator[PlacedFile]:
    for file in agent.files:
        digest = _store((recipe_files.BOOT / file.source).read_bytes(), files)
        yield PlacedFile(path=file.path, sha256=digest, mode=int(file.mode, 8))


# --- tests ----------------------------------------------------------------------------------------------------------------------


def image_tests(chain: Chain) -> tuple[ImageTest, ...]:
    """Return an image's tests: those derived from services, packages and size budget, then the recipe's own.

    A test of the recipe replaces a derived one of the same name.
    """
    own_tests = {test.name: _image_test(test) for _, layer in chain.layers for test in layer.tests}
    derived_tests = {test.name: test for test in _derived_tests(chain)}
    return tuple((derived_tests | own_tests).values())


def _image_test(test: RecipeTest) -> ImageTest:
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


def _derived_tests(chain: Chain) -> Iterator[ImageTest]:
    states = {unit: state for _, layer in chain.layers for unit, state in layer.services.states.items()}
    if enabled := tuple(unit for unit, state in states.items() if state == "enabled"):
        yield ImageTest(
            name="recipe_services_enabled",
            incident="A unit was renamed by its package, enabling it did nothing, and nodes came up without it.",
            check=BuiltinCheck.SERVICES_ENABLED,
            arguments=enabled,
            next_step="look up the unit's name in the package of this release, and correct it in the recipe",
        )
    if package_names := tuple(dict.fromkeys(name for _, layer in chain.layers for name in layer.packages)):
        yield ImageTest(
            name="recipe_packages_installed",
            incident="A package was left half configured by a failing script, and its library was missing on every node.",
            check=BuiltinCheck.PACKAGES_PRESENT,
            arguments=package_names,
            next_step="read what the package's script said while its layer was built",
        )
    budget = next((part.spec.budget.root_mib for part in reversed(chain.parts) if part.spec.budget.root_mib), None)
    if budget is not None:
        yield ImageTest(
            name="root_size",
            incident="A package with a documentation tree doubled the image, and nodes with little memory ran out of it.",
            check=BuiltinCheck.SIZE_BUDGET,
            arguments=(str(budget),),
            next_step="see which packages grew (bringup image diff), and take them out or raise budget.root_mib",
        )
