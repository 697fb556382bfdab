"""Command `bringup image diff`: what differs between two images, by file and package."""

from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli.output import Format
from workflows.engines.folders import Home

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
    """Explain what differs between two images: packages, files with the package that owns them, kernel, initrd, layers."""
    from steps.clients.image.files import comparing
    from workflows.cli.images import differences

    images = Home.of_environment().store / "images"
    found = comparing.compare(comparing.find(before, images, tree), comparing.find(after, images, tree))
    differences.show(found, form)
    return ExitCode.GATE_FAILED if exit_code and not found.same else ExitCode.OK
