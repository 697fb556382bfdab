"""The options by which a command finds a run on Argo; light, since every command has them."""

from typing import Annotated

import typer

Engine = Annotated[
    str, typer.Option("--engine", help="argo: the run is on Argo, also where this machine does not know it.", show_default=False)
]
HomeKubeconfig = Annotated[
    str, typer.Option("--home-kubeconfig", metavar="FILE", help="Kubeconfig of the home cluster, where Argo runs; or KUBECONFIG.")
]
HomeContext = Annotated[str, typer.Option("--home-context", metavar="NAME", help="Context in it; default: its current one.")]
Namespace = Annotated[str, typer.Option("--namespace", help="Namespace of the runs in home; default: bringup.")]
