"""The command group `bringup factory`: build, show and remove a disposable Kubernetes for builds."""

import sys
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from workflows.app.run_options import Wish
from workflows.cli import completion, output
from workflows.cli.command_sections import SectionedGroup
from workflows.cli.options import Output, RunOptions, Until, placed
from workflows.cli.output import Format

FactoryFile = Annotated[
    str, typer.Argument(metavar="FACTORY", help="Factory spec (factory.yaml).", autocompletion=completion.specs)
]


def register(app: typer.Typer) -> None:
    """Add the group `factory` with all its commands to the application."""
    factory = typer.Typer(no_args_is_help=True, cls=SectionedGroup)
    factory.command(name="up")(placed(up, RunOptions))
    factory.command(name="status")(status)
    factory.command(name="down")(placed(down, RunOptions))
    app.add_typer(factory, name="factory", help="Build, show and remove a disposable Kubernetes for builds.")


def up(
    spec: FactoryFile = "factory.yaml",
    until: Until = "",
    reuse: Annotated[
        str, typer.Option("--reuse", help="Reuse what this earlier run proved and still holds.", autocompletion=completion.runs)
    ] = "none",
    *,
    place: RunOptions,
) -> int:
    """Build a factory from bare OS, from this machine; if it exists, change only what differs from the spec."""
    from workflows.app.factories import factory_runs

    return factory_runs.up(output, spec, place, Wish(until=until, reuse=reuse))


def status(spec: FactoryFile = "factory.yaml", form: Output = Format.TABLE) -> int:
    """Show the newest run of a factory: its stages, the time of each phase, and the kubeconfig that opens it."""
    from workflows.app.factories import factory_runs

    view = factory_runs.status(spec)
    if form is not Format.TABLE:
        output.data(view.values(), form)
        return ExitCode.OK
    kind = "rehearsal" if view.simulated else "run"
    output.prose([f"{kind} {view.run}: {view.state}, began {view.began}"])
    output.table(("stage", "status", "reason"), view.stages)
    output.prose(view.phases)
    output.prose([f"kubeconfig {view.kubeconfig}"] if view.kubeconfig else [])
    return ExitCode.OK


def down(
    spec: FactoryFile = "factory.yaml",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    *,
    place: RunOptions,
) -> int:
    """Remove RKE2 with the registry and all builds from the machines of a factory. The operating system stays."""
    from workflows.app.factories import factory_pipeline, factory_runs

    loaded = factory_pipeline.read(spec)[1]
    if not yes:
        machines = count(len(loaded.cluster.machines), "machine")
        question = f"down takes RKE2, the registry and all builds off {machines} of factory {loaded.name}"
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"{question}, and nobody is here to ask: add --yes")
        output.lines([question])
        if typer.prompt("type the name of the factory to go on") != loaded.name:
            raise typer.BadParameter(f"that is not {loaded.name}, the name of the factory: nothing was changed")
    return factory_runs.down(output, spec, place)
