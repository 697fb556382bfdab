"""Options that several commands share. A light module, since every command imports it."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from workflows.app.run_options import ARGO, LOCAL, Pipeline, RunLocation, StartOptions
from workflows.cli import completion
from workflows.cli.output import Format

Spec = Annotated[str, typer.Argument(help="Spec file, or the name of an example.", autocompletion=completion.specs)]
Run = Annotated[str, typer.Argument(help="Name of a run; the newest where none is given.", autocompletion=completion.runs)]
RunOption = Annotated[
    str, typer.Option("--run", help="Name of a run; the newest where none is given.", autocompletion=completion.runs)
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Only this stage; repeat for more.", autocompletion=completion.stages)
]
Until = Annotated[str, typer.Option("--until", help="Up to and with this stage.", autocompletion=completion.stages)]
Hosts = Annotated[list[str] | None, typer.Option("--hosts", metavar="RANGE", help="With --operation: which hosts.")]
Engine = Annotated[
    str,
    typer.Option(
        "--engine", help="Where the run is: argo or local; default: what this machine remembers of it.", show_default=False
    ),
]
HomeKubeconfig = Annotated[
    str, typer.Option("--home-kubeconfig", metavar="FILE", help="Kubeconfig of the home cluster, where Argo runs; or KUBECONFIG.")
]
HomeContext = Annotated[str, typer.Option("--home-context", metavar="NAME", help="Context in it; default: its current one.")]
ArgoVersion = Annotated[str, typer.Option("--argo-version", help="Vouch for Argo's version where it may not be read.")]
Namespace = Annotated[str, typer.Option("--namespace", help="Namespace of the runs in home; default: bringup.")]
_PUBLIC_KEY = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[\w.@-]+ [A-Za-z0-9+/=]+( .*)?")
_LONGEST_KEY = 16384
"""Size limit of a .pub file in characters: an RSA key of 16 kbit takes 2,800."""


class CheckedOptions:
    """Base of dataclasses whose fields are options of a command; `check` tests them together."""

    def check(self) -> None:
        """Raise BadParameter for options that do not fit each other."""


@dataclass(frozen=True, kw_only=True)
class HomeOptions(CheckedOptions):
    """Options that name the home cluster and the namespace of its runs."""

    home_kubeconfig: HomeKubeconfig = ""
    home_context: HomeContext = ""
    namespace: Namespace = ""


@dataclass(frozen=True, kw_only=True)
class LocationOptions(HomeOptions, RunLocation):
    """Options that say where an existing run is: on this machine, or in which home cluster."""

    engine: Engine = ""

    def check(self) -> None:
        """Raise BadParameter for an unknown engine, or for options that contradict each other."""
        require_engine(self.engine or LOCAL)
        if self.engine == LOCAL:
            options = {"--home-kubeconfig": self.home_kubeconfig, "--home-context": self.home_context}
            refuse_for_local({**options, "--namespace": self.namespace})


@dataclass(frozen=True, kw_only=True)
class RunOptions(HomeOptions, StartOptions):
    """The options of every command that starts a run."""

    engine: Annotated[str, typer.Option("--engine", help="local, or argo: in the home cluster.")] = LOCAL
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow to the end; only argo can do without.")] = True
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the report for CI servers to this file.")] = None
    image: Annotated[str, typer.Option("--image", help="The step image, with argo; or BRINGUP_IMAGE.")] = ""
    version: ArgoVersion = ""

    def check(self) -> None:
        """Raise BadParameter for an unknown engine, or for options that the chosen engine does not have."""
        require_engine(self.engine)
        if self.engine != LOCAL:
            return
        home = {"--home-kubeconfig": self.home_kubeconfig, "--home-context": self.home_context, "--namespace": self.namespace}
        images = {"--image": self.image, "--builder-image": self.builder}
        refuse_for_local({**home, **images, "--argo-version": self.version})
        if not self.wait:
            raise typer.BadParameter("the local engine runs in this command: --no-wait is for --engine argo")


def require_engine(engine: str) -> None:
    """Raise BadParameter if the engine is neither `local` nor `argo`."""
    if engine not in (LOCAL, ARGO):
        raise typer.BadParameter(f"engine {engine!r} is unknown; use {LOCAL} or {ARGO}")


def refuse_for_local(options: Mapping[str, str]) -> None:
    """Raise BadParameter if one of these options of Argo has a value; call it if the engine is local."""
    if listed := ", ".join(name for name, value in options.items() if value):
        raise typer.BadParameter(
            f"the local engine takes no {listed}: for a run on Argo say --engine {ARGO}, else leave out {listed}"
        )


def placed(command: Callable[..., int], kind: type[CheckedOptions] = LocationOptions) -> Callable[..., int]:
    """Return a command that takes the fields of `kind` as options, checks them, and passes them on as its parameter `place`."""
    own_parameters = [parameter for parameter in inspect.signature(command).parameters.values() if parameter.name != "place"]
    options = list(inspect.signature(kind).parameters.values())

    def placing(**values: Any) -> int:
        place = kind(**{parameter.name: values.pop(parameter.name) for parameter in options})
        place.check()
        return command(**values, place=place)

    # typer reads options from name, docstring and signature, so the fields become parameters there
    placing.__name__, placing.__doc__ = command.__name__, command.__doc__
    parameters = [*own_parameters, *options]
    placing.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": int}
    placing.__signature__ = inspect.Signature([parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters])  # type: ignore[attr-defined]  # as inspect documents
    return placing


def read_public_key(file: Path, option: str = "--signer") -> str:
    """Return the SSH public key in a file, one line. Raises BadParameter for a file without a key, OSError if it cannot be read."""
    with file.open(errors="replace") as stream:
        line = stream.read(_LONGEST_KEY).strip()
    if not _PUBLIC_KEY.fullmatch(line):
        raise typer.BadParameter(f"{option} {file}: there is no SSH public key in it; name a .pub file, as ssh-keygen writes it")
    return line


def pipeline_of(source: str) -> Pipeline:
    """Return the pipeline for the spec that an argument names. Only that pipeline is imported, because imports take long."""
    from workflows.app.specs import sources

    if sources.is_image(source):
        from workflows.app.images.image_pipeline import IMAGE

        return IMAGE
    if sources.is_factory(source):
        from workflows.app.factories.factory_pipeline import FACTORY

        return FACTORY
    if sources.is_stack(source):
        from workflows.app.stacks.stack_pipeline import STACK

        return STACK
    from workflows.app.specs.cluster_pipeline import BRINGUP

    return BRINGUP
