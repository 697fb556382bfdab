"""Commands about recipes of node images and their locks: recipes, lock, update."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from workflows.cli import completion, output
from workflows.cli.options import Output
from workflows.cli.output import Format

if TYPE_CHECKING:
    from workflows.app.images.recipe_locks import NewLock
    from workflows.nodeimage.lock_difference import LockDifference, PackageChange

MOST_NAMED = 4
"""Largest number of vulnerabilities in one row of a table; JSON and YAML list all."""
_UNCHANGED = (
    ", as before: the recipe asks for nothing else (what is newer, or at another URL now: `bringup image update … --write`)"
)
Named = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|SPEC",
        help="Name of a shipped recipe, path of a recipe, or of an image spec.",
        autocompletion=completion.recipes,
    ),
]


def register(image: typer.Typer) -> None:
    """Add this module's commands to the typer group `image`."""
    for command in (recipes, lock, update):
        image.command()(command)


def recipes(
    folder: Annotated[Path | None, typer.Argument(help="A folder with recipes; without it, those that bringup ships.")] = None,
    form: Output = Format.TABLE,
) -> int:
    """List recipes: their layers, the number of packages of each, and the size of the download."""
    from workflows.app.images import recipes as image_recipes

    rows = image_recipes.listed(folder)
    cells = []
    for row in rows:
        layers = ", ".join(f"{name} {packages}" if packages else name for name, packages in row.layers)
        size = f"{row.size / 1e6:.0f} MB" if row.size else ""
        cells.append((row.name, layers, size, row.state, row.description or row.problem))
    columns = ("recipe", "layers and packages", "to fetch", "lock", "what for")
    output.listing(columns, cells, [row.data() for row in rows], form)
    return ExitCode.USAGE if any(row.problem for row in rows) else ExitCode.OK


def lock(
    named: Named = "image.yaml",
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="Keep the packages in the archive, so that no mirror is needed.")
    ] = True,
    seed: Annotated[
        list[Path] | None,
        typer.Option("--seed", exists=True, file_okay=False, help="A folder that may have packages already; repeat for more."),
    ] = None,
) -> int:
    """Lock a recipe: every package of every layer by version and digest.

    Without a lock, the newest versions of its repositories are taken. An existing lock keeps its versions, but for packages that
    the recipe newly asks for and their dependencies.
    """
    from workflows.app.images import recipe_locks

    new = recipe_locks.lock_recipe(named, seed or ())
    _show_lock(new)
    if keep:
        output.lines([recipe_locks.keep_packages(new.request, seed or ())])
    return ExitCode.OK


def update(
    named: Named = "image.yaml",
    cves: Annotated[
        Path | None,
        typer.Option("--cves", metavar="FEED.json", help="Debian's security tracker as JSON; no feed of Ubuntu is read."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the newer lock, and keep its packages.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Move this package alone, and what it needs; repeat for more."),
    ] = None,
    form: Output = Format.TABLE,
) -> int:
    """Show what a newer lock would change, before anything is built: with the newest versions of all packages, or of some."""
    from workflows.app.images import recipe_locks

    new = recipe_locks.newer_lock(named, only or (), writable=write)
    differs = new.difference(cves)
    is_written = write and new.write()
    if form is Format.TABLE:
        _show_difference(new.path, differs, first=new.before is None)
    else:
        output.data(_difference_data(new.path, differs, written=is_written), form)
    if write:
        kept = recipe_locks.keep_packages(new.request)
        output.lines([kept] if form is Format.TABLE else [])
    return ExitCode.OK


def _show_lock(new: "NewLock") -> None:
    counts = ", ".join(f"{layer.name} {len(layer.packages)}" for layer in new.lock.layers)
    changed = ""
    if new.before is not None:
        changed = f"; {_counted(new.changes)}" if new.changes else "" if new.is_written else _UNCHANGED
    output.lines([f"{new.path}: {count(len(new.lock.packages), 'package')} ({counts}){changed}"])


def _counted(changes: "Sequence[PackageChange]") -> str:
    return ", ".join(f"{sum(change.kind == kind for change in changes)} {kind}" for kind in ("added", "removed", "changed"))


def _show_difference(path: Path, differs: "LockDifference", *, first: bool) -> None:
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
        output.lines([f"counted by their own version are {count(len(differs.guessed), 'package')} {why}"])


def _few(names: Sequence[str]) -> str:
    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + rest if names else "none"


def _difference_data(path: Path, differs: "LockDifference", *, written: bool) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(differs)
    facts["changes"] = [{"kind": change.kind, **row} for change, row in zip(differs.changes, facts["changes"], strict=True)]
    return {"lock": str(path), "written": written, "changed": bool(differs.changes), **facts}
