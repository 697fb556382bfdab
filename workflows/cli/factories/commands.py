"""The command group `bringup factory`: build, show and remove a disposable Kubernetes for builds."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from workflows.app.run_options import Wish
from workflows.cli import completion, output
from workflows.cli.command_sections import SectionedGroup
from workflows.cli.options import Output, RunOptions, Until, placed
from workflows.cli.output import Format
from workflows.engines.folders import StateFolder

FactoryFile = Annotated[
    str, typer.Argument(metavar="FACTORY", help="Factory spec (factory.yaml).", autocompletion=completion.specs)
]
Force = Annotated[
    str,
    typer.Option(
        "--force", metavar="REASON", help="Rebuild though builds run, which end, or a machine does not answer; each is printed."
    ),
]
LoseVolumes = Annotated[
    bool, typer.Option("--lose-volumes", help="Rebuild though volumes of projects hold bytes that are lost; each is printed.")
]


def register(app: typer.Typer) -> None:
    """Add the group `factory` with all its commands to the application."""
    factory = typer.Typer(no_args_is_help=True, cls=SectionedGroup)
    factory.command(name="up")(placed(up, RunOptions))
    factory.command(name="status")(status)
    factory.command(name="down")(placed(down, RunOptions))
    factory.command(name="rebuild")(placed(rebuild, RunOptions))
    factory.command(name="drill")(placed(drill, RunOptions))
    factory.command(name="timer")(timer)
    factory.command(name="detach-check")(detach_check)
    app.add_typer(factory, name="factory", help="Build, show and remove a disposable Kubernetes for builds.")


def up(
    spec: FactoryFile = "factory.yaml",
    until: Until = "",
    reuse: Annotated[
        str,
        typer.Option(
            "--reuse",
            help="Reuse what this earlier run proved and still holds: a run, newest, or none.",
            autocompletion=completion.runs,
        ),
    ] = "newest",
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
        _ask(f"down takes RKE2, the registry and all builds off {machines} of factory {loaded.name}", loaded.name)
    return factory_runs.down(output, spec, place)


def rebuild(
    spec: FactoryFile = "factory.yaml",
    force: Force = "",
    lose_volumes: LoseVolumes = False,
    until: Until = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    *,
    place: RunOptions,
) -> int:
    """Throw a factory away and build it again: its machines are reinstalled if the spec says how, else emptied.

    Nothing is touched while a copy of what must survive is missing, incomplete or old, while builds run or may run, while volumes
    of projects hold bytes without a copy, if a machine belongs to a platform's spec or runs slurmd or processes of users, or if
    this command runs on one of the machines.
    """
    from workflows.app.factories import factory_rebuild
    from workflows.app.factories.rebuild_refusals import Overrides

    overrides = Overrides(reason=force, lose_volumes=lose_volumes)
    prepared = factory_rebuild.prepare(output, spec, overrides, until)
    if not yes:
        _ask(prepared.question, prepared.spec.name)
    factory_rebuild.require_idle(output, prepared)
    factory_rebuild.drain(output, prepared)
    if force:
        output.lines([f"forced: {force}"])
    return factory_rebuild.rebuild(output, prepared, place)


def drill(
    spec: FactoryFile = "factory.yaml",
    force: Force = "",
    lose_volumes: LoseVolumes = False,
    until: Until = "",
    cut_only: Annotated[bool, typer.Option("--cut-only", help="Only cut production off; nothing is rebuilt.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    *,
    place: RunOptions,
) -> int:
    """Prove that production needs no factory: cut hosts off from it, try what they run, rebuild it, and report what was lost.

    The section `drill` of the spec names the hosts and what must work on them. The factory is rebuilt only if all of that works.
    """
    from workflows.app.factories import factory_drill, factory_pipeline, factory_rebuild, production_cut
    from workflows.app.factories.rebuild_refusals import Overrides

    section = production_cut.drill_of(factory_pipeline.read(spec)[1])
    boots = f" and runs {section.machine.power!r} to boot a machine" if section.machine else ""
    question = f"drill cuts {', '.join(section.hosts)} off from the factory for a while{boots}"
    if cut_only:
        if not yes:
            _confirm(question)
        return factory_drill.cut(output, spec)
    overrides = Overrides(reason=force, lose_volumes=lose_volumes)
    prepared = factory_rebuild.prepare(output, spec, overrides, until)
    if not yes:
        _ask(f"{question}; {prepared.question}", prepared.spec.name)
    factory_rebuild.require_idle(output, prepared)
    factory_rebuild.drain(output, prepared)
    if force:
        output.lines([f"forced: {force}"])
    return factory_drill.drill(output, prepared, place)


def timer(
    spec: FactoryFile = "factory.yaml",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the files; default: to the terminal.")] = None,
    argo: Annotated[bool, typer.Option("--argo", help="Write the CronWorkflow of rebuild.second_place instead.")] = False,
) -> int:
    """Write the systemd service and timer that rebuild a factory at the times of its spec, checked by systemd itself.

    With `--argo` it is the CronWorkflow by which another cluster rebuilds the factory.
    """
    from workflows.app.factories import factory_pipeline, rebuild_cron, rebuild_timer

    path, loaded = factory_pipeline.read(spec)
    if argo:
        files = {f"rebuild-{loaded.name}.yaml": rebuild_cron.manifest(loaded, path.name)}
    else:
        files = rebuild_timer.unit_files(loaded, path.absolute(), Path(sys.argv[0]).absolute(), StateFolder.of_environment().root)
        rebuild_timer.verify(files)
    if out is None:
        output.lines(f"# {name}\n{text}" for name, text in files.items())
        return ExitCode.OK
    out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (out / name).write_text(text)
    if argo:
        output.lines([f"wrote {next(iter(files))} to {out}; kubectl apply -f installs it in the second place"])
        return ExitCode.OK
    output.lines([f"wrote {' and '.join(files)} to {out}; systemctl enable --now {list(files)[1]} starts the timer"])
    return ExitCode.OK


def detach_check(
    places: Annotated[list[Path], typer.Argument(metavar="PLACE...", help="Published folders, and specs of platforms.")],
    spec: Annotated[str, typer.Option("--factory", help="Factory spec.", autocompletion=completion.specs)] = "factory.yaml",
    folder: Annotated[list[str] | None, typer.Option("--folder", help="A folder of the factory; repeat for more.")] = None,
    unread_ok: Annotated[
        bool, typer.Option("--unread-ok", help="Accept that files could not be looked into; they are listed.")
    ] = False,
    form: Output = Format.TABLE,
) -> int:
    """Prove that nothing leads into a factory: links, texts, module files and strings of binaries in what production reads.

    Files that cannot be read or unpacked, such as packs of Git, are listed and prove nothing.
    """
    from workflows.app.factories import factory_detachment, factory_pipeline

    result = factory_detachment.check(factory_pipeline.read(spec)[1], places, folder or ())
    good = not result.links and (unread_ok or not result.unread)
    if form is not Format.TABLE:
        links = [{"place": link.place, "leads_to": link.leads_to, "why": link.why} for link in result.links]
        output.data({"ok": good, "links": links, "unread": list(result.unread), "files": result.files}, form)
        return ExitCode.OK if good else ExitCode.GATE_FAILED
    output.lines([link.sentence for link in result.links])
    output.lines([f"not read: {place}" for place in result.unread])
    if good:
        output.lines([result.summary])
    elif not result.links:
        output.lines(["what was not read may lead into the factory; --unread-ok accepts that once you have looked at it"])
    return ExitCode.OK if good else ExitCode.GATE_FAILED


def _confirm(question: str) -> None:
    """Ask before production is touched. Raises BadParameter without a terminal, or for any answer but yes."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question}, and nobody is here to ask: add --yes")
    if not typer.confirm(question):
        raise typer.BadParameter("nothing was changed")


def _ask(question: str, name: str) -> None:
    """Ask for the factory's name before it is removed. Raises BadParameter without a terminal, or if another name is typed."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question}, and nobody is here to ask: add --yes")
    output.lines([question])
    if typer.prompt("type the name of the factory to go on") != name:
        raise typer.BadParameter(f"that is not {name}, the name of the factory: nothing was changed")
