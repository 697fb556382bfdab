"""The options by which a command finds a run on Argo, defined once; light, since every such command has them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import typer

LOCAL, ARGO = "local", "argo"
Engine = Annotated[
    str,
    typer.Option("--engine", help="argo: on Argo, also where this machine does not know the run; local: here.", show_default=False),
]
HomeKubeconfig = Annotated[
    str, typer.Option("--home-kubeconfig", metavar="FILE", help="Kubeconfig of the home cluster, where Argo runs; or KUBECONFIG.")
]
HomeContext = Annotated[str, typer.Option("--home-context", metavar="NAME", help="Context in it; default: its current one.")]
ArgoVersion = Annotated[str, typer.Option("--argo-version", help="Vouch for Argo's version where it may not be read.")]
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
        return self.engine == ARGO or bool(self.home_kubeconfig or self.home_context or self.namespace)

    def check(self) -> None:
        """Raise BadParameter where it names no engine, or says two things at once."""
        require_engine(self.engine or LOCAL)
        if self.engine == LOCAL:
            told = {"--home-kubeconfig": self.home_kubeconfig, "--home-context": self.home_context}
            refuse_for_local({**told, "--namespace": self.namespace})


def require_engine(engine: str) -> None:
    """Raise BadParameter for an engine that there is not."""
    if engine not in (LOCAL, ARGO):
        raise typer.BadParameter(f"engine {engine!r} is none; use {LOCAL} or {ARGO}")


def refuse_for_local(given: Mapping[str, str]) -> None:
    """Raise BadParameter where an option that means something on Argo alone is given for the local engine."""
    names = [name for name, value in given.items() if value]
    if names:
        said = ", ".join(names)
        raise typer.BadParameter(f"the local engine takes no {said}: for a run on Argo say --engine {ARGO}, else leave out {said}")


class Checked(Protocol):
    """Options that are checked together."""

    def check(self) -> None:
        """Raise BadParameter where they do not fit each other."""


def placed(command: Callable[..., int], kind: type[Checked] = Place) -> Callable[..., int]:
    """A command whose parameter `place` is a dataclass of options: these stand on its command line instead, and are checked."""
    kept = [one for one in inspect.signature(command).parameters.values() if one.name != "place"]
    options = list(inspect.signature(kind).parameters.values())

    def placing(**given: Any) -> int:
        place = kind(**{one.name: given.pop(one.name) for one in options})
        place.check()
        return command(**given, place=place)

    placing.__name__, placing.__doc__ = command.__name__, command.__doc__
    every = [*kept, *options]
    placing.__annotations__ = {one.name: one.annotation for one in every} | {"return": int}
    placing.__signature__ = inspect.Signature([one.replace(kind=one.KEYWORD_ONLY) for one in every])  # type: ignore[attr-defined]  # as inspect documents
    return placing
