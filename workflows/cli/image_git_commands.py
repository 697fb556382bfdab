"""Command `bringup image from-git`: what a schedule's pod runs; the newest spec of a Git branch becomes a build on Argo."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from workflows.cli import starting
from workflows.cli.argo_options import ARGO, HomeContext, HomeKubeconfig, Namespace, placed


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the build runs: always on Argo, and nobody waits for it."""

    kubeconfig: HomeKubeconfig = ""
    context: HomeContext = ""
    namespace: Namespace = ""
    image: Annotated[str, typer.Option("--image", help="The step image; or BRINGUP_IMAGE.")] = ""
    builder: Annotated[str, typer.Option("--builder-image", help="The image of pods that build; or BRINGUP_BUILDER_IMAGE.")] = ""

    def check(self) -> None:
        """All of them fit each other."""

    @property
    def started(self) -> starting.Place:
        """As commands that start runs take it."""
        from workflows.cli.image_build_commands import Place as Building
        from workflows.engines.argo.installation import OLDEST

        # whoever installed the schedule saw the controller's version, which a pod of the schedule may not
        version = ".".join(map(str, OLDEST))
        return Building(
            engine=ARGO,
            wait=False,
            kubeconfig=self.kubeconfig,
            context=self.context,
            namespace=self.namespace,
            image=self.image,
            version=version,
            builder=self.builder,
        )


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
    *,
    place: Place,
) -> int:
    """Start a build on Argo of what a Git branch says now, and end older ones; nothing where exactly that is being built."""
    from workflows.cli import from_git as building

    source = building.Branch(repository=repository, branch=branch, path=path, name=name)
    with TemporaryDirectory(prefix="bringup-checkout-") as folder:
        return building.build(source, secrets, Path(folder), place.started)
