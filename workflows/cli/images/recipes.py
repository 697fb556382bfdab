"""Recipes and locks as commands show them: the list, the difference to a newer lock, and the packages that are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import typer

from steps.contract.exit import ExitCode
from steps.contract.image.recipe import Layer, Package, Recipe
from workflows.cli import output
from workflows.cli.images import specs
from workflows.cli.specs import kinds, sources
from workflows.engines.folders import Home
from workflows.images.errors import BuildError, FetchError
from workflows.images.nodes import chain, difference, lockfile, resolve, shipped
from workflows.images.nodes.difference import Change, Difference
from workflows.images.nodes.keeping import Bring
from workflows.images.nodes.lockfile import Lock
from workflows.images.nodes.resolve import Asked
from workflows.spec import SpecErrors
from workflows.spec.image import is_path

SUFFIXES = (".yaml", ".yml")
BY_PROXY = "it is asked by the proxy that http_proxy or https_proxy names (sudo drops both), else by that of apt's settings"
MOST_NAMED = 4
"""Vulnerabilities named in one row of a table; all are in the other forms."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One recipe of the list; `problem` says why nothing else is known of it."""

    name: str
    path: Path
    description: str = ""
    extends: str = ""
    layers: tuple[tuple[str, int], ...] = ()
    size: int = 0
    state: str = ""
    problem: str = ""

    def data(self) -> dict[str, Any]:
        """For scripts."""
        layers = [{"name": name, "packages": count} for name, count in self.layers]
        told = {"name": self.name, "path": str(self.path), "description": self.description, "extends": self.extends}
        return {**told, "layers": layers, "download_bytes": self.size, "lock": self.state, "problem": self.problem}


def asked(named: str) -> Asked:
    """What a RECIPE|SPEC argument asks for. Raises NoSpec, SpecErrors."""
    if not is_path(named):
        return resolve.of_recipe(named, Path())
    path = sources.find_image(named)
    if kinds.kind_of(path) == kinds.IMAGE_SPEC:
        return specs.asked(path, specs.load(path))
    specs.refuse_others(path, specs.CLUSTER)
    return recipe_at(path, named)


def recipe_at(path: Path, named: str) -> Asked:
    """A recipe by its path."""
    return resolve.of_recipe(path.name, path.parent, f"bringup image lock {named}")


def listed(folder: Path | None) -> list[Row]:
    """The recipes of a folder, in order of their names."""
    where = folder or shipped.RECIPES
    if not where.is_dir():
        raise typer.BadParameter(f"{where} is no folder")
    files = sorted(path for path in where.iterdir() if path.suffix in SUFFIXES)
    return [_row(path) for path in files]


def _row(path: Path) -> Row:
    request = recipe_at(path, str(path))
    try:
        found = request.chain(by_name=True)
    except SpecErrors as errors:
        first = errors.errors[0]
        said = ": ".join(filter(None, (first.path, first.problem)))
        return Row(name=path.stem, path=path, problem=f"{said} ({output.count(len(errors.errors), 'error')})")
    lock, state = _locked(request, found)
    layers = tuple((layer.name, len(lock.layer(layer.name)) if lock else 0) for _, layer in found.layers)
    spec = found.top.spec
    size = sum(one.size for one in lock.packages.values()) if lock else 0
    return Row(
        name=spec.name, path=path, description=spec.description, extends=spec.extends or "", layers=layers, size=size, state=state
    )


def _locked(request: Asked, found: chain.Chain) -> tuple[Lock | None, str]:
    path = request.lock_path(found)
    if not path.exists():
        return None, "none"
    try:
        return resolve.locked(request, found), "fits"
    except BuildError as error:
        return None, f"unusable: {error}"


def show_list(rows: Sequence[Row]) -> None:
    """The list for a person."""
    table = []
    for row in rows:
        layers = ", ".join(f"{name} {count}" if count else name for name, count in row.layers)
        size = f"{row.size / 1e6:.0f} MB" if row.size else ""
        table.append((row.name, layers, size, row.state, row.description or row.problem))
    output.table(("recipe", "layers and packages", "to fetch", "lock", "what for"), table)


def own_lock(request: Asked, found: chain.Chain) -> Path:
    """Where a lock may be written: a spec's is never that of a shipped recipe, which others build with. Raises BuildError."""
    if request.secrets is not None and not request.lock and found.top.is_shipped:
        name = found.top.spec.name
        raise BuildError(
            f"the spec takes recipe {name} with the lock that it comes with", hint=f"add lock: {name}.lock.json to the spec"
        )
    return request.lock_path(found)


def before(request: Asked, path: Path) -> Lock | None:
    """The lock as it lies there; None where there is none yet. Raises BuildError where it is damaged."""
    try:
        return lockfile.read(path, request.command) if path.exists() else None
    except BuildError as error:  # locking it again would not mend it: it is read for what stays
        hint = f"take it from Git, or remove it, which moves all to the newest, and {error.hint}"
        raise BuildError(str(error), hint=hint) from error


def bringing(request: Asked, seeds: Sequence[Path] = ()) -> Bring:
    """Has locked packages in the archive of this machine's store, and says where. It raises FetchError where a mirror is away."""
    from steps.clients.image.layer import archive
    from steps.contract.image import debian

    found = request.chain()
    images, layer = Home.of_environment().store / "images", Layer(name="locked")
    ground = found.foundation
    recipe = Recipe(
        name=found.top.spec.name,
        distribution=ground.distribution,
        release=ground.release,
        architecture=ground.architecture,
        epoch=ground.epoch,
        sources=tuple(one.source for one in request.sources(found)),
        layers=(),
        kernel=ground.kernel,
    )

    def bring(packages: Sequence[Package]) -> Mapping[str, Path]:
        wanted = msgspec.structs.replace(recipe, layers=(msgspec.structs.replace(layer, packages=tuple(packages)),))
        told = archive.fill(images, wanted, lambda _: None, (*seeds, *debian.CACHES))
        if told.away:
            raise FetchError(
                f"{output.count(told.away, 'package')} of the earlier lock could not be fetched: {told.problems[0]}",
                hint=f"run it again when the mirror answers; {BY_PROXY}",
            )
        lacking = {*told.missing, *told.wrong}
        return {one.sha256: archive.path(images, one.sha256) for one in packages if f"{one.name}={one.version}" not in lacking}

    return bring


def kept(request: Asked, seeds: Sequence[Path], *, quiet: bool = False) -> int:
    """Keep the locked packages in the archive of this machine's store; exit code 75 where some cannot be had now."""
    from steps.clients.image.layer import archive
    from steps.contract.image import debian

    images = Home.of_environment().store / "images"
    told = archive.fill(images, resolve.resolve(request).recipe, lambda _: None, (*seeds, *debian.CACHES))
    if lacking := [*told.missing, *told.wrong]:
        why = f": {told.problems[0]}" if told.problems else ""
        hint = "run it again when the mirror answers" + (f"; {BY_PROXY}" if told.is_only_away else "")
        output.error(f"{output.count(len(lacking), 'package')} could not be kept{why}", hint)
        return ExitCode.TEMPORARY
    if not quiet:
        output.lines(
            [f"{images / archive.FOLDER}: all {told.packages} kept, {told.fetched} of them now, {told.bytes / 1e6:.0f} MB"]
        )
    return ExitCode.OK


_UNCHANGED = (
    ", as before: the recipe asks for nothing else (what is newer, or at another URL now: `bringup image update … --write`)"
)


def show_lock(path: Path, lock: Lock, before: Lock | None, *, written: bool) -> None:
    """A lock that was made, and what it changes in that which was there."""
    counts = ", ".join(f"{layer.name} {len(layer.packages)}" for layer in lock.layers)
    said = ""
    if before is not None:
        changes = difference.between(before, lock).changes
        said = f"; {_counted(changes)}" if changes else "" if written else _UNCHANGED
    output.lines([f"{path}: {output.count(len(lock.packages), 'package')} ({counts}){said}"])


def _counted(changes: Sequence[Change]) -> str:
    return ", ".join(f"{sum(one.kind == kind for one in changes)} {kind}" for kind in ("added", "removed", "changed"))


def show_difference(path: Path, differs: Difference, *, first: bool) -> None:
    """The difference for a person."""
    if not differs.changes:
        output.lines([f"{path}: nothing newer"])
    else:
        rows = [
            (one.package, one.layer, one.before or "-", one.after or "-", _few(one.fixed), _few(one.new)) for one in differs.changes
        ]
        cut = 6 if differs.left is not None else 4
        columns = ("package", "layer", "now", "then", "fixes", "brings")
        if not first:
            output.table(columns[:cut], [row[:cut] for row in rows])
        grown = (differs.size_after - differs.size_before) / 1e6
        output.lines([f"{path}{' (no lock yet)' if first else ''}: {_counted(differs.changes)}; {grown:+.1f} MB to fetch"])
    if differs.left is not None:
        output.lines([f"vulnerabilities: {len(differs.fixed or ())} fixed by it, {len(differs.left)} left ({_few(differs.left)})"])
    if differs.guessed:
        why = "of whose source the lock does not say the version: fewer may be fixed"
        output.lines([f"counted by their own version are {output.count(len(differs.guessed), 'package')} {why}"])


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more if names else "none"


def difference_data(path: Path, differs: Difference, *, written: bool) -> dict[str, Any]:
    """The difference for scripts."""
    told: dict[str, Any] = msgspec.to_builtins(differs)
    told["changes"] = [{"kind": one.kind, **row} for one, row in zip(differs.changes, told["changes"], strict=True)]
    return {"lock": str(path), "written": written, "changed": bool(differs.changes), **told}
