"""The command group `bringup image`: node images and the step image."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.command_sections import SectionedGroup
from workflows.cli.images import build_commands, recipe_commands, store_commands, tree_commands
from workflows.cli.options import Output
from workflows.cli.output import Format

Builder = Annotated[bool, typer.Option("--builder", help="The builder image: the step image, and programs that build node images.")]
Tree = Annotated[Path | None, typer.Option("--tree", help="Checkout of bringup; without it, the one that this command comes from.")]


def register(app: typer.Typer) -> None:
    """Add the group `image` with all its commands to the application."""
    image, step = (typer.Typer(no_args_is_help=True, cls=SectionedGroup) for _ in range(2))
    build_commands.register_build(image)
    for group in (recipe_commands, tree_commands, store_commands):
        group.register(image)
    build_commands.register_from_git(image)
    step.command(name="build")(build)
    step.command(name="lock")(lock)
    image.add_typer(step, name="step", help="The image that runs `python -m steps` in pods.")
    app.add_typer(image, name="image", help="Build, test, publish and roll back node images; build the image of pods.")


def build(
    out: Annotated[Path, typer.Option("--out", help="Where to write the OCI archive; its bill of materials is written beside it.")],
    name: Annotated[str, typer.Option("--name", help="Image reference, with a tag.")] = "",
    builder: Builder = False,
    tree: Tree = None,
    form: Output = Format.TABLE,
) -> int:
    """Build the step image as an OCI archive, without daemon, registry or root. The same inputs give the same digest."""
    from workflows.app.images import pod_images

    built = pod_images.build(tree or pod_images.CHECKOUT, out, name, partial(typer.echo, err=True), builder=builder)
    if form is not Format.TABLE:
        facts = {"archive": str(built.archive), "sbom": str(built.bill), "name": built.name}
        output.data({**facts, "digest": built.digest, "image_id": built.image_id, "size": built.size}, form)
    else:
        output.lines([f"{built.name} {built.digest}"])
        output.lines([f"{built.archive}: {built.size / 1e6:.1f} MB, bill of materials {built.bill}"])
    return ExitCode.OK


def lock(builder: Builder = False, tree: Tree = None) -> int:
    """Lock the step image again: the newest Debian packages of its suites, wheels as in uv.lock.

    With --builder, lock what the builder image adds to the step image. The step image stays as it is locked: lock it first.
    """
    from workflows.app.images import pod_images

    folder, debs, wheels = pod_images.lock(tree or pod_images.CHECKOUT, builder=builder)
    output.lines([f"{folder}: {debs} packages, {wheels} wheels locked"])
    return ExitCode.OK
