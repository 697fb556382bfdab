"""Commands about runs: run, rehearse, status, watch, logs, approve, cancel, resume."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steps.contract import approval
from steps.contract.exit import ExitCode
from steps.contract.operation import Kind, Operation
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
from workflows.engines.folders import StateFolder, new_run_name

if TYPE_CHECKING:
    from workflows.plan.model import Plan
    from workflows.spec import ClusterSpec

Spec = Annotated[str, typer.Argument(help="Spec file, or the name of an example.")]
Run = Annotated[str, typer.Argument(help="Name of a run; the newest where none is given.")]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Only this stage; repeat for more.")]
Until = Annotated[str, typer.Option("--until", help="Up to and with this stage.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(rehearse)
    app.command()(placed(run, starting.Place))
    app.command()(runs)
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
    """Run the whole pipeline, or an operation, against a simulated cluster on this machine, with faults if you name some."""
    from workflows.cli import kubeconfigs
    from workflows.cli.runs import operations, running
    from workflows.cli.specs import revisions, sources
    from workflows.rehearsal import approver, loopback, starting_cluster
    from workflows.rehearsal.existing_server import existing_server
    from workflows.rehearsal.rehearsal_run import RehearsalOptions
    from workflows.rehearsal.rehearsal_run import rehearse as play

    existing = existing_server(kubeconfig, roles_off, speed, nodes_at)
    work = operations.named(operation, hosts or (), older)
    again = {
        "--fault": fault or (),
        "--only": only or (),
        "--until": [until],
        "--seed": [seed] * (seed != 1),
        "--approve-as": [approve_as] * (approve_as != approval.REHEARSAL),
        "--key": [key],
        "--kubeconfig": [kubeconfig or ""],
        "--roles-off": [roles_off],
        "--nodes-at": [nodes_at],
        "--speed": [] if speed is None else [speed],
        "--operation": [operation],
        "--hosts": hosts or (),
        "--from": [older],
    }
    options = RehearsalOptions(
        faults=tuple(fault or ()),
        seed=seed,
        existing=existing,
        bare=starting_cluster.replaced_hosts(work),
        restart_command=_restart_command(spec, again, hold=hold),
    )
    loaded = sources.read(spec)[1]
    plan, bundle = running.prepare(loaded, operations.only(work, only or (), until), until, work)
    approver.check_approver(plan, approve_as, key)
    before = _plan_before(loaded, plan, work, older)
    loopback.require_loopback()
    if kubeconfig is not None:
        kubeconfigs.require(kubeconfig, "--kubeconfig")
    options.check(loaded, plan)  # refuse options before a run exists
    output.lines([f"first, healthy and unseen: {', '.join(stage.id for stage in before.stages)}"] if before else [])
    folder = StateFolder.of_environment().run(new_run_name(plan.name))
    revisions.keep(folder, spec)
    with running.shown(plan, folder) as view:
        watchers = [view.observe] if hold else [view.observe, approver.approving_observer(folder, approve_as, key)]
        result = play(folder, plan, bundle, options, watchers, before)
    code = running.conclude(folder, result)
    if kubeconfig is not None:
        output.lines([f"cluster  {kubeconfig} {_KEEPS_STATE}"])
    return code


_KEEPS_STATE = "keeps what was simulated: no other rehearsal can use it until its etcd is empty again"


def _plan_before(spec: "ClusterSpec", plan: "Plan", work: Operation, older: str) -> "Plan | None":
    """Return the plan that brings the simulated cluster to where the rehearsal starts; None for a bare one."""
    from workflows.rehearsal import earlier_stages, starting_cluster

    if work.kind is Kind.BRINGUP:
        return earlier_stages.plan_of_earlier_stages(spec, plan)
    return starting_cluster.starting_plan(spec, plan, work, older)


def _restart_command(spec: str, options: Mapping[str, Iterable[object]], *, hold: bool) -> str:
    """Return the command line that starts the same rehearsal again; options without a value are left out."""
    words = [part for name, values in options.items() for value in values if str(value) for part in (name, str(value))]
    return shlex.join(["bringup", "rehearse", spec, *words, *(["--hold"] if hold else [])])


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
    """Continue an interrupted run. For a run that has ended, start a new one that reuses its passed stages.

    Both use the spec and secrets of the earlier run. If those have changed, use: bringup run SPEC --reuse RUN.
    """
    from workflows.cli.argo import acting as argo
    from workflows.cli.argo import running as argo_running
    from workflows.cli.runs import resuming

    if away := argo.find(run, place):
        return argo_running.resume(away, version)
    refuse_for_local({"--argo-version": version})
    return resuming.resume(StateFolder.of_environment().find(run))


def status(
    run: Run = "",
    form: Output = Format.TABLE,
    *,
    place: Place,
) -> int:
    """Show how far a run is and what it waits for."""
    from workflows.cli.argo import acting as argo

    if away := argo.find(run, place):
        return argo.show_status(away, form)
    from workflows.cli.runs import following

    view = following.status(StateFolder.of_environment().find(run))
    if form is not Format.TABLE:
        output.data(view, form)
        return ExitCode.OK
    output.lines([f"run {view['run']}: {view['phase']} {view['message']}".rstrip()])
    for wait in view["waiting"]:
        output.lines([f"waits for an approval before {wait['stage']} since {wait['since']}: {wait['how']}"])
        output.lines([f"  it is about {wait['about']}"])
    output.table(("stage", "status", "reason"), [(row["stage"], row["status"], row["reason"]) for row in view["stages"]])
    return ExitCode.OK


def runs(form: Output = Format.TABLE) -> int:
    """List the runs that this machine knows, the newest first."""
    from dataclasses import asdict

    from workflows.app import run_list

    found = run_list.listed_runs(StateFolder.of_environment())
    if form is not Format.TABLE:
        output.data([asdict(one) for one in found], form)
        return ExitCode.OK
    output.table(("run", "engine", "started", "state"), [(one.run, one.engine, one.started, one.state) for one in found])
    return ExitCode.OK


def watch(run: Run = "", *, place: Place) -> int:
    """Follow a run until it ends, from any terminal."""
    from workflows.cli.argo import acting as argo

    if away := argo.find(run, place):
        return argo.watch(away)
    from workflows.cli.runs import following

    return following.follow(StateFolder.of_environment().find(run))


def logs(
    task: Annotated[str, typer.Argument(help="STAGE or STAGE.TASK, or a part of it.")] = "",
    run: Annotated[str, typer.Option("--run", help="Name of a run; the newest where none is given.")] = "",
    *,
    place: Place,
) -> int:
    """Print the logs of a run's tasks, also while they run."""
    from workflows.cli.argo import acting as argo

    away = argo.locate(run, place)
    folder = away.folder if away else StateFolder.of_environment().find(run)
    from workflows.cli.runs import following

    texts = argo.show_logs(away, task) if away else following.log_files(folder, task)
    if not texts:
        raise following.NoLog(task, folder, argo.nodes(away) if away else following.nodes(folder))
    for name, text in texts:
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
    """Answer an approval that a run waits for. You approve evidence that you name, or that this machine has shown or shows now."""
    if not who:
        raise typer.BadParameter("an approval needs a name: --as NAME")
    from workflows.cli.argo import acting as argo
    from workflows.cli.runs import answering

    if away := argo.find(run, place):
        return answering.on_argo(away, who, stage, reject=reject, key=key, evidence=evidence)
    return answering.here(StateFolder.of_environment().find(run), who, stage, reject=reject, key=key, evidence=evidence)


def cancel(
    run: Run = "",
    now: Annotated[bool, typer.Option("--now", help="Do not run the exit handler (no report).")] = False,
    *,
    place: Place,
) -> int:
    """Stop a run: its steps are ended, then report and seal are written."""
    from workflows.cli.argo import acting as argo

    if away := argo.find(run, place):
        from workflows.cli.argo import ending

        return ending.cancel(away, now=now)
    from workflows.cli.runs import cancelling, following

    folder = StateFolder.of_environment().find(run)
    first = cancelling.by_command(folder)  # written before the engine stops, so that its report can name the person
    try:
        following.send(folder, "terminate" if now else "stop", "", {}, "cancelled by an operator")
    except following.NoEngine:
        if first:
            cancelling.take_back(folder)
        raise
    output.lines([f"{folder.name} is being cancelled"])
    return ExitCode.OK
