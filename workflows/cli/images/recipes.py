"""Recipes and locks for commands: the list, the difference to a newer lock, and the packages that are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import typer

from steps.contract.exit import ExitCode
from steps.nodeimage.contract.resolved_recipe import Package, Recipe, ResolvedLayer
from workflows.cli import output
from workflows.cli.images import specs
from workflows.cli.specs import kinds, sources
from workflows.engines.folders import StateFolder
from workflows.nodeimage import lock_difference, lockfile, recipe_chain, recipe_files, recipe_resolution
from workflows.nodeimage.image_spec import is_path
from workflows.nodeimage.lock_difference import LockDifference, PackageChange
from workflows.nodeimage.lock_update import Bring
from workflows.nodeimage.lockfile import Lock
from workflows.nodeimage.recipe_resolution import RecipeRequest
from workflows.podimage.errors import BuildError, FetchError
from workflows.spec import SpecErrors

SUFFIXES = (".yaml", ".yml")
BY_PROXY = "it is asked by the proxy that http_proxy or https_proxy names (sudo drops both), else by that of apt's settings"
MOST_NAMED = 4
"""Largest number of vulnerabilities in one row of a table; the other forms have all."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A recipe of the list; `problem` says why nothing else is known of the recipe."""

    name: str
    path: Path
    description: str = ""
    extends: str = ""
    layers: tuple[tuple[str, int], ...] = ()
    size: int = 0
    state: str = ""
    problem: str = ""

    def data(self) -> dict[str, Any]:
        """Return the row for scripts."""
        layers = [{"name": name, "packages": count} for name, count in self.layers]
        facts = {"name": self.name, "path": str(self.path), "description": self.description, "extends": self.extends}
        return {**facts, "layers": layers, "download_bytes": self.size, "lock": self.state, "problem": self.problem}


def asked(named: str) -> RecipeRequest:
    """Return the recipe that a RECIPE|SPEC argument names. Raises NoSpec, SpecErrors."""
    if not is_path(named):
        return recipe_resolution.of_recipe(named, Path())
    path = sources.find_image(named)
    if kinds.kind_of(path) == kinds.IMAGE_SPEC:
        return specs.asked(path, specs.load(path))
    specs.refuse_others(path, specs.CLUSTER)
    return recipe_at(path, named)


def recipe_at(path: Path, named: str) -> RecipeRequest:
    """Return the recipe at a path."""
    return recipe_resolution.of_recipe(path.name, path.parent, f"bringup image lock {named}")


def listed(folder: Path | None) -> list[Row]:
    """Return the recipes of a folder, sorted by name."""
    root = folder or recipe_files.RECIPES
    if not root.is_dir():
        raise typer.BadParameter(f"{root} is no folder")
    files = sorted(path for path in root.iterdir() if path.suffix in SUFFIXES)
    return [_row(path) for path in files]


def _row(path: Path) -> Row:
    request = recipe_at(path, str(path))
    try:
        chain = request.chain(by_name=True)
    except SpecErrors as errors:
        first = errors.errors[0]
        problem = ": ".join(filter(None, (first.path, first.problem)))
        return Row(name=path.stem, path=path, problem=f"{problem} ({output.count(len(errors.errors), 'error')})")
    lock, state = _locked(request, chain)
    layers = tuple((layer.name, len(lock.layer(layer.name)) if lock else 0) for _, layer in chain.layers)
    spec = chain.top.spec
    size = sum(package.size for package in lock.packages.values()) if lock else 0
    return Row(
        name=spec.name, path=path, description=spec.description, extends=spec.extends or "", layers=layers, size=size, state=state
    )


def _locked(request: RecipeRequest, found: recipe_chain.Chain) -> tuple[Lock | None, str]:
    path = request.lock_path(found)
    if not path.exists():
        return None, "none"
    try:
        return recipe_resolution.locked(request, found), "fits"
    except BuildError as error:
        return None, f"unusable: {error}"


def show_list(rows: Sequence[Row]) -> None:
    """Print the list for a person."""
    table = []
    for row in rows:
        layers = ", ".join(f"{name} {count}" if count else name for name, count in row.layers)
        size = f"{row.size / 1e6:.0f} MB" if row.size else ""
        table.append((row.name, layers, size, row.state, row.description or row.problem))
    output.table(("recipe", "layers and packages", "to fetch", "lock", "what for"), table)


def own_lock(request: RecipeRequest, found: recipe_chain.Chain) -> Path:
    """Return the lock file that may be written. Raises BuildError for a spec that uses a shipped recipe's lock, which others use
    too.
    """
    if request.secrets is not None and not request.lock and found.top.is_shipped:
        name = found.top.spec.name
        raise BuildError(
            f"the spec takes recipe {name} with the lock that it comes with", hint=f"add lock: {name}.lock.json to the spec"
        )
    return request.lock_path(found)


def before(request: RecipeRequest, path: Path) -> Lock | None:
    """Return the existing lock, or None. Raises BuildError if it is damaged."""
    try:
        return lockfile.read(path, request.command) if path.exists() else None
    except BuildError as error:  # a new lock would need the damaged one, for the versions that stay
        hint = f"take it from Git, or remove it, which moves all to the newest, and {error.hint}"
        raise BuildError(str(error), hint=hint) from error


def bringing(request: RecipeRequest, seeds: Sequence[Path] = ()) -> Bring:
    """Return a function that fetches locked packages into this machine's archive and returns their paths.

    The function raises FetchError if a mirror is away.
    """
    from steps.nodeimage.contract import debian
    from steps.nodeimage.layer import package_archive

    chain = request.chain()
    images, layer = StateFolder.of_environment().store / "images", ResolvedLayer(name="locked")
    foundation = chain.foundation
    recipe = Recipe(
        name=chain.top.spec.name,
        distribution=foundation.distribution,
        release=foundation.release,
        architecture=foundation.architecture,
        epoch=foundation.epoch,
        sources=tuple(one.source for one in request.sources(chain)),
        layers=(),
        kernel=foundation.kernel,
    )

    def bring(packages: Sequence[Package]) -> Mapping[str, Path]:
        subset = msgspec.structs.replace(recipe, layers=(msgspec.structs.replace(layer, packages=tuple(packages)),))
        filled = package_archive.fill(images, subset, lambda _: None, (*seeds, *debian.CACHES))
        if filled.away:
            raise FetchError(
                f"{output.count(filled.away, 'package')} of the earlier lock could not be fetched: {filled.problems[0]}",
                hint=f"run it again when the mirror answers; {BY_PROXY}",
            )
        lacking = {*filled.missing, *filled.wrong}
        return {
            one.sha256: package_archive.path(images, one.sha256) for one in packages if f"{one.name}={one.version}" not in lacking
        }

    return bring


def kept(request: RecipeRequest, seeds: Sequence[Path], *, quiet: bool = False) -> int:
    """Keep the locked packages in this machine's archive; return exit code 75 if some cannot be fetched now."""
    from steps.nodeimage.contract import debian
    from steps.nodeimage.layer import package_archive as archive

    images = StateFolder.of_environment().store / "images"
    filled = archive.fill(images, recipe_resolution.resolve(request).recipe, lambda _: None, (*seeds, *debian.CACHES))
    if lacking := [*filled.missing, *filled.wrong]:
        why = f": {filled.problems[0]}" if filled.problems else ""
        hint = "run it again when the mirror answers" + (f"; {BY_PROXY}" if filled.is_only_away else "")
        output.error(f"{output.count(len(lacking), 'package')} could not be kept{why}", hint)
        return ExitCode.TEMPORARY
    if not quiet:
        output.lines(
            [f"{images / archive.FOLDER}: all {filled.packages} kept, {filled.fetched} of them now, {filled.bytes / 1e6:.0f} MB"]
        )
    return ExitCode.OK


_UNCHANGED = (
    ", as before: the recipe asks for nothing else (what is newer, or at another URL now: `bringup image update … --write`)"
)


def show_lock(path: Path, lock: Lock, before: Lock | None, *, written: bool) -> None:
    """Print a new lock, and its changes against the earlier one."""
    counts = ", ".join(f"{layer.name} {len(layer.packages)}" for layer in lock.layers)
    changed = ""
    if before is not None:
        changes = lock_difference.between(before, lock).changes
        changed = f"; {_counted(changes)}" if changes else "" if written else _UNCHANGED
    output.lines([f"{path}: {output.count(len(lock.packages), 'package')} ({counts}){changed}"])


def _counted(changes: Sequence[PackageChange]) -> str:
    return ", ".join(f"{sum(change.kind == kind for change in changes)} {kind}" for kind in ("added", "removed", "changed"))


def show_difference(path: Path, differs: LockDifference, *, first: bool) -> None:
    """Print the difference for a person."""
    if not differs.changes:
        output.lines([f"{path}: nothing newer"])
    else:
        rows = [
            (change.package, change.layer, change.before or "-", change.after or "-", _few(change.fixed), _few(change.new))
            for change in differs.changes
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
    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + rest if names else "none"


def difference_data(path: Path, differs: LockDifference, *, written: bool) -> dict[str, Any]:
    """Return the difference for scripts."""
    facts: dict[str, Any] = msgspec.to_builtins(differs)
    facts["changes"] = [{"kind": change.kind, **row} for change, row in zip(differs.changes, facts["changes"], strict=True)]
    return {"lock": str(path), "written": written, "changed": bool(differs.changes), **facts}
