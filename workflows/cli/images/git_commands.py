"""The command `bringup image from-git`, which a schedule's pod runs: the newest spec of a Git branch becomes a build on Argo."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from workflows.cli.argo.options import HomeContext, HomeKubeconfig, Namespace, placed


@dataclass(frozen=True, kw_only=True)
class Place:
    """Options of the build, which always runs on Argo, without a person who waits."""

    kubeconfig: HomeKubeconfig = ""
    context: HomeContext = ""
    namespace: Namespace = ""
    image: Annotated[str, typer.Option("--image", help="The step image; or BRINGUP_IMAGE.")] = ""
    builder: Annotated[str, typer.Option("--builder-image", help="The image of pods that build; or BRINGUP_BUILDER_IMAGE.")] = ""
    starter: Annotated[str, typer.Option("--starter", help="Workflow whose pod this is; what it makes ends with that.")] = ""

    def check(self) -> None:
        """Accept all options: they fit each other."""


def register(image: typer.Typer) -> None:
    """Add the command."""
    image.command(name="from-git")(placed(from_git, Place))


def from_git(
    repository: Annotated[str, typer.Argument(metavar="REPOSITORY", help="Address of the Git repository.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Path of the image spec in it.")],
    branch: Annotated[str, typer.Option("--branch", help="Branch of which the newest commit is built.")] = "main",
    name: Annotated[str, typer.Option("--name", help="Name that the spec must have; default: any.")] = "",
    secrets: Annotated[
        Path | None, typer.Option("--secrets", help="Folder of credentials, known_hosts and ca, as far as there are such files.")
    ] = None,
    use: Annotated[
        list[str] | None, typer.Option("--may-use", metavar="SECRET/KEY", help="Key of a Secret that the spec may name; no others.")
    ] = None,
    approver: Annotated[
        list[str] | None, typer.Option("--approver", help="Who must be asked before it is published; default: as the spec says.")
    ] = None,
    *,
    place: Place,
) -> int:
    """Start a build of a Git branch's newest commit on Argo, and end older builds of this image.

    If a build of the same commit is already running, no new one is started.
    """
    from steps.clients.private_folder import private_folder
    from workflows.cli import kubeconfigs
    from workflows.cli.images import from_git as building
    from workflows.cli.images.from_git_bounds import Bounds
    from workflows.cli.images.from_git_checkout import Branch

    source = Branch(repository=repository, branch=branch, path=path, name=name, secrets=secrets)
    bounds = Bounds(secrets=tuple(use or ()), approvers=tuple(sorted(approver or ())))
    home = kubeconfigs.home(place.kubeconfig, place.context, place.namespace)
    target = building.Target(home=home, image=place.image, builder=place.builder, starter=place.starter)
    with private_folder(sockets=False) as folder:
        checkout = folder.resolve() / "checkout"
        checkout.mkdir()
        return building.build(source, bounds, target, checkout)
