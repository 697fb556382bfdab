"""Commands that build node images: build makes a published image of a recipe, from-git builds a branch's newest commit on Argo."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.app.run_options import Wish
from workflows.cli import completion, output
from workflows.cli.images.tree_commands import NOBODY
from workflows.cli.options import HomeOptions, RunOptions, placed

Spec = Annotated[
    str,
    typer.Argument(
        metavar="SPEC|RECIPE",
        help="Image spec (image.yaml), or a shipped recipe, to build and test it alone.",
        autocompletion=completion.recipes,
    ),
]


@dataclass(frozen=True, kw_only=True)
class BuildOptions(RunOptions):
    """Options of `image build`: those of every run, and the image of the pods that build on Argo."""

    builder: Annotated[
        str, typer.Option("--builder-image", help="The image of pods that build, with argo; or BRINGUP_BUILDER_IMAGE.")
    ] = ""


@dataclass(frozen=True, kw_only=True)
class BranchBuildOptions(HomeOptions):
    """Options of `image from-git`, which always runs on Argo and never asks a person."""

    image: Annotated[str, typer.Option("--image", help="The step image; or BRINGUP_IMAGE.")] = ""
    builder: Annotated[str, typer.Option("--builder-image", help="The image of pods that build; or BRINGUP_BUILDER_IMAGE.")] = ""
    starter: Annotated[str, typer.Option("--starter", help="Workflow whose pod this is; what it makes ends with that.")] = ""


def register_build(image: typer.Typer) -> None:
    """Add the command `build` to the group; help shows it first."""
    image.command(name="build")(placed(build, BuildOptions))


def register_from_git(image: typer.Typer) -> None:
    """Add the command `from-git` to the group; help shows it last."""
    image.command(name="from-git")(placed(from_git, BranchBuildOptions))


def build(
    spec: Spec = "image.yaml",
    until: Annotated[str, typer.Option("--until", help="Up to and with this stage.")] = "",
    reuse: Annotated[str, typer.Option("--reuse", help="Reuse boots that this earlier run showed of the same image.")] = "none",
    again: Annotated[
        bool, typer.Option("--again", help="Build even if nothing changed, or if a rollback left this version.")
    ] = False,
    supersede: Annotated[bool, typer.Option("--supersede", help="End builds of the same image that go on.")] = False,
    *,
    place: BuildOptions,
) -> int:
    """Build what has changed, test it in a sandbox and by PXE boots, and publish it. If nothing has changed, write nothing."""
    from workflows.app.images import image_builds

    wish = Wish(reuse=reuse, until=until, again=again, supersede=supersede)
    prepared = image_builds.prepare(spec, place, wish, NOBODY)
    if prepared.unchanged:
        output.lines(prepared.unchanged_lines())
        if place.junit is None:
            return ExitCode.OK
        from workflows.app.runs import run_reports

        return run_reports.keep_nothing_changed(output, place.junit, prepared.loaded.name, prepared.unchanged, "image")
    from workflows.app.runs import run_start

    code = run_start.start(output, prepared.spec, place, prepared.wish, prepared.pipeline)
    if code == ExitCode.OK:
        output.lines(prepared.unpublished_lines())
    return code


def from_git(
    repository: Annotated[str, typer.Argument(metavar="REPOSITORY", help="Address of the Git repository.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Path of the image spec in it.")],
    branch: Annotated[str, typer.Option("--branch", help="Branch of which the newest commit is built.")] = "main",
    name: Annotated[str, typer.Option("--name", help="Name that the spec must have; default: any.")] = "",
    secrets: Annotated[
        Path | None, typer.Option("--secrets", help="Folder of credentials, known_hosts and ca, as far as there are such files.")
    ] = None,
    use: Annotated[
        list[str] | None,
        typer.Option(
            "--may-use",
            metavar="ROLE=SECRET/KEY",
            help="Key of a Secret that the spec may name in a role such as publish_ssh_key; no others.",
        ),
    ] = None,
    approver: Annotated[
        list[str] | None, typer.Option("--approver", help="Who must be asked before it is published; default: as the spec says.")
    ] = None,
    *,
    place: BranchBuildOptions,
) -> int:
    """Start a build of a Git branch's newest commit on Argo, and end older builds of this image.

    If a build of the same commit is already running, no new one is started.
    """
    from workflows.app import branch_build, kubeconfigs
    from workflows.app.images.image_branch import IMAGE_BRANCH

    source = branch_build.Branch(repository=repository, branch=branch, path=path, name=name, secrets=secrets)
    bounds = branch_build.Bounds(secrets=tuple(use or ()), approvers=tuple(sorted(approver or ())))
    home = kubeconfigs.home(place.home_kubeconfig, place.home_context, place.namespace)
    target = branch_build.Target(home=home, image=place.image, builder=place.builder, starter=place.starter)
    return branch_build.build(output, IMAGE_BRANCH, source, bounds, target)
