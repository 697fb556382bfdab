"""Commands about runs: run, rehearse, status, watch, logs, approve, cancel, resume."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from steps.contract import approval
from steps.contract.exit import ExitCode
from steps.contract.operation import Kind
from workflows.cli import output
from workflows.cli.argo.options import (
    ArgoVersion,
    Place,
    placed,
    refuse_for_local,
)
from workflows.cli.output import Format
from workflows.cli.runs import starting
from workflows.cli.specs import pipelines
from workflows.engines.folders import Home, new_run_name

Spec = Annotated[str, typer.Argument(help="Spec file, or the name of an example.")]
Run = Annotated[str, typer.Argument(help="Name of a run; the newest where none is given.")]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Only this stage; repeat for more.")]
Until = Annotated[str, typer.Option("--until", help="Up to and with this stage.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(rehearse)
    app.command()(placed(run, starting.Place))
    for command in (status, watch, logs, approve, cancel, resume):
        app.command()(placed(command))


def rehearse(
    spec: Spec = "h200-16",
    fault: Annotated[list[str] | None, typer.Option("--fault", help="Disturb: NAME or NAME:NODE,… (see `bringup faults`).")] = None,
    approve_as: Annotated[
        str, typer.Option("--approve-as", metavar="NAME", help="Approve in this person's name.")
    ] = approval.REHEARSAL,
    key: Annotated[str, typer.Option("--key", help="Private SSH key that signs approvals, where the spec lists keys.")] = "",
    hold: Annotated[bool, typer.Option("--hold", help="Wait for `bringup approve` in another terminal.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the simulated cluster's delays.")] = 1,
    kubeconfig: Annotated[
        Path | None,
        typer.Option("--kubeconfig", help="Play in this API server, new and nobody else's; it keeps what is simulated."),
    ] = None,
    roles_off: Annotated[str, typer.Option("--roles-off", metavar="ROLE,…", help="Roles that real programs play there.")] = "",
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed", help="With roles off: simulated seconds a second at most (1); a fifth of it while real programs act."
        ),
    ] = None,
    nodes_at: Annotated[
        str, typer.Option("--nodes-at", metavar="ADDRESS", help="This machine, as that API server reaches it for logs of pods.")
    ] = "",
    only: Only = None,
    until: Until = "",
    operation: Annotated[
        str, typer.Option("--operation", metavar="NAME", help="Rehearse add-node, replace-node, upgrade, rollback or reset.")
    ] = "",
    hosts: Annotated[list[str] | None, typer.Option("--hosts", metavar="RANGE", help="With --operation: which hosts.")] = None,
    older: Annotated[
        str,
        typer.Option("--from", metavar="VERSION", help="With --operation upgrade or rollback: the release that the cluster has."),
    ] = "",
) -> int:
    """Run the whole pipeline against a simulated cluster on this machine, faults included; or an operation on such a cluster."""
    from workflows.cli import kubeconfigs
    from workflows.cli.runs import operations, running
    from workflows.cli.specs import revisions, sources
    from workflows.rehearsal import approver, loopback, preparing, standing
    from workflows.rehearsal.existing import existing
    from workflows.rehearsal.rehearse import Options
    from workflows.rehearsal.rehearse import rehearse as play

    there = existing(kubeconfig, roles_off, speed, nodes_at)
    asked: dict[str, Iterable[object]] = {
        "--fault": fault or (),
        "--only": only or (),
        "--until": [until],
        "--seed": [seed] * (seed != 1),
    }
    asked |= {
        "--approve-as": [approve_as] * (approve_as != approval.REHEARSAL),
        "--key": [key],
        "--kubeconfig": [kubeconfig or ""],
        "--roles-off": [roles_off],
    }
    asked |= {"--nodes-at": [nodes_at], "--speed": [] if speed is None else [speed]}
    asked |= {"--operation": [operation], "--hosts": hosts or (), "--from": [older]}
    work = operations.named(operation, hosts or (), older)
    again = ["bringup", "rehearse", spec, *_given(asked), *(["--hold"] if hold else [])]
    options = Options(faults=tuple(fault or ()), seed=seed, existing=there, bare=standing.bare(work), again=shlex.join(again))
    loaded = sources.read(spec)[1]
    plan, bundle = running.prepare(loaded, operations.only(work, only or (), until), until, work)
    approver.check(plan, approve_as, key)
    is_whole = work.kind is Kind.BRINGUP
    before = preparing.ground(loaded, plan) if is_whole else standing.ground(loaded, plan, work, older)
    loopback.require()
    if kubeconfig is not None:
        kubeconfigs.require(kubeconfig, "--kubeconfig")
    options.check(loaded, plan)  # before there is a run that would have to be explained
    if before is not None:
        output.lines([f"first, healthy and unseen: {', '.join(stage.id for stage in before.stages)}"])
    folder = Home.of_environment().run(new_run_name(plan.name))
    revisions.keep(folder, spec)
    with running.shown(plan, folder) as view:
        watchers = [view.observe] if hold else [view.observe, approver.opener(folder, approve_as, key)]
        result = play(folder, plan, bundle, options, watchers, before)
    code = running.conclude(folder, result)
    if kubeconfig is not None:
        output.lines(
            [f"cluster  {kubeconfig} keeps what was simulated: no other rehearsal can use it until its etcd is empty again"]
        )
    return code


def _given(asked: Mapping[str, Iterable[object]]) -> list[str]:
    """Options with their values as words, those without a value left out."""
    return [part for name, values in asked.items() for value in values if str(value) for part in (name, str(value))]


def run(
    spec: Spec = "cluster.yaml",
    reuse: Annotated[str, typer.Option("--reuse", help="Reuse stages that this earlier run proved.")] = "none",
    only: Only = None,
    until: Until = "",
    *,
    place: starting.Place,
) -> int:
    """Run a spec on real hosts: with the embedded engine, or on the Argo Workflows of a home cluster."""
    return starting.start(spec, place, pipelines.Wish(reuse=reuse, only=tuple(only or ()), until=until))


def resume(run: Run = "", version: ArgoVersion = "", *, place: Place) -> int:
    """Go on with a run that was interrupted; of one that has ended, start a new run that reuses what it proved.

    Both are told what the run was told. After a change of spec or secrets: bringup run SPEC --reuse RUN.
    """
    from workflows.cli.argo import acting as argo
    from workflows.cli.argo import running as argo_running
    from workflows.cli.runs import resuming

    if away := argo.find(run, place):
        return argo_running.resume(away, version)
    refuse_for_local({"--argo-version": version})
    return resuming.resume(Home.of_environment().find(run))


def status(
    run: Run = "",
    form: Output = Format.TABLE,
    *,
    place: Place,
) -> int:
    """Show where a run stands and what it waits for."""
    from workflows.cli.argo import acting as argo

    if away := argo.find(run, place):
        return argo.show_status(away, form)
    from workflows.cli.runs import following

    view = following.status(Home.of_environment().find(run))
    if form is not Format.TABLE:
        output.data(view, form)
        return ExitCode.OK
    output.lines([f"run {view['run']}: {view['phase']} {view['message']}".rstrip()])
    for wait in view["waiting"]:
        output.lines([f"waits for an approval before {wait['stage']} since {wait['since']}: {wait['how']}"])
        output.lines([f"  it is about {wait['about']}"])
    output.table(("stage", "status", "reason"), [(row["stage"], row["status"], row["reason"]) for row in view["stages"]])
    return ExitCode.OK


def watch(run: Run = "", *, place: Place) -> int:
    """Follow a run until it ends, from any terminal."""
    from workflows.cli.argo import acting as argo

    if away := argo.find(run, place):
        return argo.watch(away)
    from workflows.cli.runs import following

    return following.follow(Home.of_environment().find(run))


def logs(
    task: Annotated[str, typer.Argument(help="STAGE or STAGE.TASK, or a part of it.")] = "",
    run: Annotated[str, typer.Option("--run", help="Name of a run; the newest where none is given.")] = "",
    *,
    place: Place,
) -> int:
    """Print the logs of a run's tasks, also while they run."""
    from workflows.cli.argo import acting as argo

    away = argo.locate(run, place)
    folder = away.folder if away else Home.of_environment().find(run)
    from workflows.cli.runs import following

    found = argo.show_logs(away, task) if away else following.log_files(folder, task)
    if not found:
        raise following.NoLog(task, folder, argo.nodes(away) if away else following.nodes(folder))
    for name, text in found:
        output.lines([f"==> {name} <==", text])
    return ExitCode.OK


def approve(
    run: Run = "",
    who: Annotated[str, typer.Option("--as", metavar="NAME", help="Your name; it becomes evidence.")] = "",
    stage: Annotated[str, typer.Option("--stage", help="Which approval, where more than one waits.")] = "",
    reject: Annotated[bool, typer.Option("--reject", help="Answer no; the run ends.")] = False,
    key: Annotated[str, typer.Option("--key", help="Private SSH key, where the spec lists approvers' keys.")] = "",
    evidence: Annotated[str, typer.Option("--evidence", help="Digest that was shown; refused when it is another by now.")] = "",
    *,
    place: Place,
) -> int:
    """Answer an approval that a run waits for, on the evidence that you have seen: named, shown by `status` here, or shown now."""
    if not who:
        raise typer.BadParameter("an approval needs a name: --as NAME")
    from workflows.cli.argo import acting as argo
    from workflows.cli.runs import answering

    if away := argo.find(run, place):
        return answering.on_argo(away, who, stage, reject=reject, key=key, evidence=evidence)
    return answering.here(Home.of_environment().find(run), who, stage, reject=reject, key=key, evidence=evidence)


def cancel(
    run: Run = "",
    now: Annotated[bool, typer.Option("--now", help="Do not run the exit handler (no report).")] = False,
    *,
    place: Place,
) -> int:
    """Stop a run: its steps are ended, then report and seal run."""
    from workflows.cli.argo import acting as argo

    if away := argo.find(run, place):
        from workflows.cli.argo import ending

        return ending.cancel(away, now=now)
    from workflows.cli.runs import cancelling, following

    folder = Home.of_environment().find(run)
    first = cancelling.by_command(folder)  # before the engine stops, so that its report can say who
    try:
        following.send(folder, "terminate" if now else "stop", "", {}, "cancelled by an operator")
    except following.NoEngine:
        if first:
            cancelling.take_back(folder)
        raise
    output.lines([f"{folder.name} is being cancelled"])
    return ExitCode.OK
