"""Commands about runs: run, rehearse, status, watch, logs, approve, cancel, resume."""

import os
from pathlib import Path
from typing import Annotated

import typer

from steps.contract import approval
from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.output import Format
from workflows.engines.folders import Home, new_run_name

Spec = Annotated[str, typer.Argument(help="Spec file, or the name of an example.")]
Run = Annotated[str, typer.Argument(help="Name of a run; the newest where none is given.")]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Only this stage; repeat for more.")]
Until = Annotated[str, typer.Option("--until", help="Up to and with this stage.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (rehearse, run, status, watch, logs, approve, cancel, resume):
        app.command()(command)


def rehearse(
    spec: Spec = "h200-16",
    fault: Annotated[list[str] | None, typer.Option("--fault", help="Disturb: NAME or NAME:NODE,… (see `bringup faults`).")] = None,
    approve_as: Annotated[
        str, typer.Option("--approve-as", metavar="NAME", help="Approve in this person's name.")
    ] = approval.REHEARSAL,
    key: Annotated[str, typer.Option("--key", help="Private SSH key that signs approvals, where the spec lists keys.")] = "",
    hold: Annotated[bool, typer.Option("--hold", help="Wait for `bringup approve` in another terminal.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the simulated cluster's delays.")] = 1,
    only: Only = None,
    until: Until = "",
) -> int:
    """Run the whole pipeline against a simulated cluster on this machine, faults included."""
    from workflows.cli import running, sources
    from workflows.rehearsal import approver
    from workflows.rehearsal.rehearse import Options
    from workflows.rehearsal.rehearse import rehearse as play

    options = Options(faults=tuple(fault or ()), seed=seed)
    loaded = sources.read(spec)[1]
    plan, bundle = running.prepare(loaded, only or (), until)
    options.check(loaded, plan)
    approver.check(plan, approve_as, key)
    folder = Home.of_environment().run(new_run_name(plan.name))
    with running.shown(plan, folder) as view:
        watchers = [view.observe] if hold else [view.observe, approver.opener(folder, approve_as, key)]
        result = play(folder, plan, bundle, options, watchers)
    return running.conclude(folder, result)


def run(
    spec: Spec = "cluster.yaml",
    engine: Annotated[str, typer.Option("--engine", help="local; argo is not in this version.")] = "local",
    reuse: Annotated[str, typer.Option("--reuse", help="Reuse stages that this earlier run proved.")] = "none",
    only: Only = None,
    until: Until = "",
) -> int:
    """Run a spec on real hosts with the embedded engine."""
    from workflows.cli import running, sources
    from workflows.engines import inputs, launch

    if engine != "local":
        raise typer.BadParameter(f"engine {engine!r} is not in this version; use local, or submit what `bringup render` writes")
    path, loaded = sources.read(spec)
    plan, bundle = running.prepare(loaded, only or (), until)
    folder = Home.of_environment().run(new_run_name(plan.name))
    inputs.write(folder, plan, bundle, path.parent if Path(spec).exists() else Path.cwd(), os.environ)
    with running.shown(plan, folder) as view:
        result = launch.start(folder, {}, view.observe, reuse)
    return running.conclude(folder, result)


def resume(run: Run = "") -> int:
    """Go on with a run whose engine was ended; what was done is not done again."""
    from workflows.cli import running
    from workflows.engines import launch
    from workflows.rehearsal.rehearse import refuse_resuming

    folder = Home.of_environment().find(run)
    refuse_resuming(folder)
    result = launch.resume(folder, {}, running.plain_observer)
    return running.conclude(folder, result)


def status(run: Run = "", form: Output = Format.TABLE) -> int:
    """Show where a run stands and what it waits for."""
    from workflows.cli import following

    view = following.status(Home.of_environment().find(run))
    if form is not Format.TABLE:
        output.data(view, form)
        return ExitCode.OK
    output.lines([f"run {view['run']}: {view['phase']} {view['message']}".rstrip()])
    output.lines(f"waits for an approval before {wait['stage']} since {wait['since']}: {wait['how']}" for wait in view["waiting"])
    output.table(("stage", "status", "reason"), [(row["stage"], row["status"], row["reason"]) for row in view["stages"]])
    return ExitCode.OK


def watch(run: Run = "") -> int:
    """Follow a run until it ends, from any terminal."""
    from workflows.cli import following

    return following.follow(Home.of_environment().find(run))


def logs(
    task: Annotated[str, typer.Argument(help="STAGE or STAGE.TASK, or a part of it.")] = "",
    run: Annotated[str, typer.Option("--run", help="Name of a run; the newest where none is given.")] = "",
) -> int:
    """Print the logs of a run's tasks, also while they run."""
    from workflows.cli import following

    folder = Home.of_environment().find(run)
    found = following.log_files(folder, task)
    if not found:
        raise typer.BadParameter(f"no log of {task!r} in run {folder.name}")
    for name, text in found:
        output.lines([f"==> {name} <==", text])
    return ExitCode.OK


def approve(
    run: Run = "",
    who: Annotated[str, typer.Option("--as", metavar="NAME", help="Your name; it becomes evidence.")] = "",
    stage: Annotated[str, typer.Option("--stage", help="Which approval, where more than one waits.")] = "",
    reject: Annotated[bool, typer.Option("--reject", help="Answer no; the run ends.")] = False,
    key: Annotated[str, typer.Option("--key", help="Private SSH key, where the spec lists approvers' keys.")] = "",
) -> int:
    """Answer an approval that a run waits for, on the evidence as it is now."""
    from workflows.cli import following
    from workflows.engines import approvals

    if not who:
        raise typer.BadParameter("an approval needs a name: --as NAME")
    folder = Home.of_environment().find(run)
    one = approvals.choose(folder, following.open_nodes(folder), stage)
    given = approvals.answer(folder, one, approval.REJECT if reject else approval.PASS, who, key)
    following.send(folder, "approve", one.node, given, f"answered by {who}")
    output.lines([f"{'rejected' if reject else 'approved'} {one.approved} in {folder.name} as {who}, evidence {one.evidence}"])
    return ExitCode.OK


def cancel(
    run: Run = "", now: Annotated[bool, typer.Option("--now", help="Do not run the exit handler (no report).")] = False
) -> int:
    """Stop a run: its steps are ended, then report and seal run."""
    from workflows.cli import following

    folder = Home.of_environment().find(run)
    following.send(folder, "terminate" if now else "stop", "", {}, "cancelled by an operator")
    output.lines([f"{folder.name} is being cancelled"])
    return ExitCode.OK
