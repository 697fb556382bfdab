"""The command `bringup image gc`: remove unneeded layers, images and packages from the store."""

from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo.options import placed
from workflows.cli.images.trees import NOBODY, Login
from workflows.cli.output import Format
from workflows.engines.folders import StateFolder

DAY = 86400.0
Keep = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECIPE|SPEC]...", help="What stays buildable; default: shipped recipes, ./image.yaml."),
]
Published = Annotated[
    list[str] | None,
    typer.Option("--published", metavar="TREE|SPEC", help="A published tree, whose images stay buildable; repeat for more."),
]
Pin = Annotated[list[str] | None, typer.Option("--pin", metavar="KEY", help="A key or digest that stays; repeat for more.")]
Packages = Annotated[bool, typer.Option("--packages", help="Packages go too: all that no RECIPE, SPEC or option keeps.")]
Days = Annotated[float, typer.Option("--days", min=0, help="What was used, or belongs to a run that began, so lately stays.")]


def register(image: typer.Typer) -> None:
    """Add the command."""
    image.command(name="gc")(placed(collect, Login))


def collect(
    keep: Keep = None,
    published: Published = None,
    pin: Pin = None,
    days: Days = 7,
    packages: Packages = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    form: Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")] = Format.TABLE,
    place: Login = NOBODY,
) -> int:
    """Remove layers and images that no recipe, published image or recent run needs; packages only with --packages.

    Files in use are never removed.
    """
    from steps.nodeimage import garbage_collection
    from workflows.cli.images import gc

    if packages and not keep:
        raise typer.BadParameter("--packages goes with every RECIPE or SPEC whose packages stay: name them")
    home = StateFolder.of_environment()
    own_spec = None if keep else gc.here(place)
    roots = gc.roots(home, keep or (), published or (), pin or (), days * DAY, place) | (
        own_spec.roots if own_spec else garbage_collection.Roots()
    )
    collected = garbage_collection.collect(home.store / gc.IMAGES, roots, recent=days * DAY, dry_run=dry_run, packages=packages)
    if form is Format.TABLE:
        gc.show(collected, own_spec, dry_run=dry_run, packages=packages)
    else:
        output.data(gc.data(collected), form)
    return ExitCode.OK
