"""Command `bringup image diff`: what differs between two images, by file and package."""

from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli.output import Format
from workflows.engines.folders import StateFolder

_ANY = "A key, or its first digits; a folder with an image; with --tree, NAME (what is published now), NAME/VERSION or NAME/NUMBER."


def register(image: typer.Typer) -> None:
    """Add the command."""
    image.command()(diff)


def diff(
    before: Annotated[str, typer.Argument(help=_ANY)],
    after: Annotated[str, typer.Argument(help="The other image.")],
    tree: Annotated[
        Path | None, typer.Option("--tree", help="A published tree to find versions in: a folder of this machine, not publish.ssh.")
    ] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="End with 65 where the images differ, for scripts.")] = False,
    form: Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")] = Format.TABLE,
) -> int:
    """Show the differences of two images: packages, files with the package that owns them, kernel, initrd, layers."""
    from steps.nodeimage.files import image_comparison
    from workflows.cli.images import differences

    images = StateFolder.of_environment().store / "images"
    difference = image_comparison.compare(image_comparison.find(before, images, tree), image_comparison.find(after, images, tree))
    differences.show(difference, form)
    return ExitCode.GATE_FAILED if exit_code and not difference.same else ExitCode.OK
