"""Options by which a command finds a run on Argo, defined once; a light module, since every such command imports it."""

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
    """The options that say where a run is; if all are empty, this machine's record of the run decides."""

    engine: Engine = ""
    home_kubeconfig: HomeKubeconfig = ""
    home_context: HomeContext = ""
    namespace: Namespace = ""

    @property
    def is_named(self) -> bool:
        """Return True if the command line says that the run is on Argo."""
        return self.engine == ARGO or bool(self.home_kubeconfig or self.home_context or self.namespace)

    def check(self) -> None:
        """Raise BadParameter for an unknown engine, or for options that contradict each other."""
        require_engine(self.engine or LOCAL)
        if self.engine == LOCAL:
            options = {"--home-kubeconfig": self.home_kubeconfig, "--home-context": self.home_context}
            refuse_for_local({**options, "--namespace": self.namespace})


def require_engine(engine: str) -> None:
    """Raise BadParameter for an unknown engine."""
    if engine not in (LOCAL, ARGO):
        raise typer.BadParameter(f"engine {engine!r} is none; use {LOCAL} or {ARGO}")


def refuse_for_local(given: Mapping[str, str]) -> None:
    """Raise BadParameter if an option for Argo is given with the local engine."""
    names = [name for name, value in given.items() if value]
    if names:
        listed = ", ".join(names)
        raise typer.BadParameter(
            f"the local engine takes no {listed}: for a run on Argo say --engine {ARGO}, else leave out {listed}"
        )


class Checked(Protocol):
    """A dataclass of options that are checked together."""

    def check(self) -> None:
        """Raise BadParameter for options that do not fit each other."""


def placed(command: Callable[..., int], kind: type[Checked] = Place) -> Callable[..., int]:
    """Return a command that has the fields of a dataclass as options, in place of its parameter `place`; they are checked first."""
    own_parameters = [parameter for parameter in inspect.signature(command).parameters.values() if parameter.name != "place"]
    options = list(inspect.signature(kind).parameters.values())

    def placing(**given: Any) -> int:
        place = kind(**{parameter.name: given.pop(parameter.name) for parameter in options})
        place.check()
        return command(**given, place=place)

    # typer reads options from name, docstring and signature, so the fields become parameters there
    placing.__name__, placing.__doc__ = command.__name__, command.__doc__
    parameters = [*own_parameters, *options]
    placing.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": int}
    placing.__signature__ = inspect.Signature([parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters])  # type: ignore[attr-defined]  # as inspect documents
    return placing
