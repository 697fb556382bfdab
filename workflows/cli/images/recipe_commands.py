"""Commands about recipes of node images and their locks: recipes, lock, update."""

from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.output import Format

Named = Annotated[
    str, typer.Argument(metavar="RECIPE|SPEC", help="Name of a shipped recipe, path of a recipe, or of an image spec.")
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]


def register(image: typer.Typer) -> None:
    """Add the commands."""
    for command in (recipes, lock, update):
        image.command()(command)


def recipes(
    folder: Annotated[Path | None, typer.Argument(help="A folder with recipes; without it, those that bringup ships.")] = None,
    form: Output = Format.TABLE,
) -> int:
    """List recipes: their layers, the number of packages of each, and the size of the download."""
    from workflows.cli.images import recipes as image_recipes

    rows = image_recipes.listed(folder)
    if form is Format.TABLE:
        image_recipes.show_list(rows)
    else:
        output.data([row.data() for row in rows], form)
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
    from workflows.cli.images import recipes as image_recipes
    from workflows.nodeimage import lock_creation

    asked = image_recipes.asked(named)
    path = image_recipes.own_lock(asked, asked.chain())
    before = image_recipes.before(asked, path)
    new_lock = (
        lock_creation.again(asked, before, image_recipes.bringing(asked, seed or ())) if before else lock_creation.newest(asked)
    )
    is_written = lock_creation.write(new_lock, path)
    image_recipes.show_lock(path, new_lock, before, written=is_written)
    return image_recipes.kept(asked, seed or ()) if keep else ExitCode.OK


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
    from workflows.cli.images import recipes as image_recipes
    from workflows.nodeimage import lock_creation as locking
    from workflows.nodeimage import lock_difference
    from workflows.nodeimage.vulnerabilities import Feed
    from workflows.podimage.errors import BuildError

    asked = image_recipes.asked(named)
    chain = asked.chain()
    path = image_recipes.own_lock(asked, chain) if write else asked.lock_path(chain)
    feed = Feed(cves, chain.foundation.release) if cves else None
    before = image_recipes.before(asked, path)
    if only:
        if before is None:
            raise BuildError(
                f"the lock {path} is not there: nothing has a version that could stay", hint=f"make it: {asked.command}"
            )
        after = locking.again(asked, before, image_recipes.bringing(asked), only)
    else:
        after = locking.newest(asked)
    differs = lock_difference.between(before, after, feed)
    if form is Format.TABLE:
        image_recipes.show_difference(path, differs, first=before is None)
    else:
        output.data(image_recipes.difference_data(path, differs, written=write), form)
    if not write:
        return ExitCode.OK
    locking.write(after, path)
    return image_recipes.kept(asked, (), quiet=form is not Format.TABLE)
