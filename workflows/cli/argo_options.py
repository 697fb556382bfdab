"""The options by which a command finds a run on Argo, defined once; light, since every such command has them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

Engine = Annotated[
    str, typer.Option("--engine", help="argo: the run is on Argo, also where this machine does not know it.", show_default=False)
]
HomeKubeconfig = Annotated[
    str, typer.Option("--home-kubeconfig", metavar="FILE", help="Kubeconfig of the home cluster, where Argo runs; or KUBECONFIG.")
]
HomeContext = Annotated[str, typer.Option("--home-context", metavar="NAME", help="Context in it; default: its current one.")]
Namespace = Annotated[str, typer.Option("--namespace", help="Namespace of the runs in home; default: bringup.")]


@dataclass(frozen=True)
class Place:
    """What the command line says about where a run is; all empty: what this machine remembers of it."""

    engine: Engine = ""
    home_kubeconfig: HomeKubeconfig = ""
    home_context: HomeContext = ""
    namespace: Namespace = ""

    @property
    def is_named(self) -> bool:
        """Whether the command line says that the run is on Argo."""
        return self.engine == "argo" or bool(self.home_kubeconfig or self.home_context or self.namespace)


def placed(command: Callable[..., int]) -> Callable[..., int]:
    """A command whose last parameter is `place`: on its command line stand the options of a Place instead."""
    kept = [one for one in inspect.signature(command).parameters.values() if one.name != "place"]
    options = list(inspect.signature(Place).parameters.values())

    def placing(**given: Any) -> int:
        told = {one.name: given.pop(one.name) for one in options}
        return command(**given, place=Place(**told))

    placing.__name__, placing.__doc__ = command.__name__, command.__doc__
    every = [*kept, *options]
    placing.__annotations__ = {one.name: one.annotation for one in every} | {"return": int}
    placing.__signature__ = inspect.Signature([one.replace(kind=one.KEYWORD_ONLY) for one in every])  # type: ignore[attr-defined]  # as inspect documents
    return placing
