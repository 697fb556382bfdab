"""Commands about runs: run, rehearse, status, watch, logs, approve, cancel, resume."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steps import timeouts
from steps.contract.exit import ExitCode
from steps.contract.runs import approval
from workflows.app.run_options import LOCAL, RehearsalRequest, Wish
from workflows.cli import completion, output
from workflows.cli.options import (
    ArgoVersion,
    HomeOptions,
    Hosts,
    LocationOptions,
    Only,
    Output,
    Run,
    RunOption,
    RunOptions,
    Spec,
    Until,
    placed,
    refuse_for_local,
    require_engine,
)
from workflows.cli.output import Format
from workflows.engines.folders import RunFolder, StateFolder

if TYPE_CHECKING:
    from workflows.app.runs.argo_runs import ArgoRun


def register(app: typer.Typer) -> None:
    """Add this module's commands to the typer application."""
    app.command()(placed(rehearse, RehearseOptions))
    app.command()(placed(run, RunOptions))
    app.command()(runs)
    for command in (status, watch, logs, approve, cancel, resume):
        app.command()(placed(command))


def _here(run: str) -> RunFolder:
    return StateFolder.of_environment().find(run)


def _on_argo(run: str, place: LocationOptions) -> "ArgoRun | None":
    """Return the run if it is on Argo, None for a run of this machine, for which the Kubernetes client is not imported."""
    from workflows.engines.argo import run_memory

    if not place.is_named and run_memory.read(_here(run)) is None:
        return None
    from workflows.app.runs import argo_runs

    return argo_runs.find(run, place)


@dataclass(frozen=True, kw_only=True)
class RehearseOptions(HomeOptions, RehearsalRequest):
    """The options of the command `rehearse`."""

    engine: Annotated[str, typer.Option("--engine", help="local, or argo: in the home cluster, where people approve.")] = LOCAL
    image: Annotated[str, typer.Option("--image", help="The step image, with argo; or BRINGUP_IMAGE.")] = ""
    builder: Annotated[
        str, typer.Option("--builder-image", help="The image that simulates the cluster, with argo; or BRINGUP_BUILDER_IMAGE.")
    ] = ""
    version: ArgoVersion = ""

    spec: Spec = "h200-16"
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", help="Disturb: NAME or NAME:NODE,… (see `bringup faults`).", autocompletion=completion.faults),
    ] = None
    approve_as: Annotated[str, typer.Option("--approve-as", metavar="NAME", help="Approve in this person's name.")] = (
        approval.REHEARSAL
    )
    key: Annotated[str, typer.Option("--key", help="Private SSH key that signs approvals, where the spec lists keys.")] = ""
    hold: Annotated[bool, typer.Option("--hold", help="Wait for `bringup approve` in another terminal.")] = False
    seed: Annotated[int, typer.Option("--seed", help="Seed of the simulated cluster's delays.")] = 1
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig", help="Use this empty API server, which keeps the simulated objects; default: an emulated one."
        ),
    ] = None
    roles_off: Annotated[str, typer.Option("--roles-off", metavar="ROLE,…", help="Roles that real programs play there.")] = ""
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed", help="With roles off: simulated seconds a second at most (1); a fifth of it while real programs act."
        ),
    ] = None
    nodes_at: Annotated[
        str, typer.Option("--nodes-at", metavar="ADDRESS", help="This machine, as that API server reaches it for logs of pods.")
    ] = ""
    only: Only = None
    until: Until = ""
    operation: Annotated[
        str,
        typer.Option(
            "--operation",
            metavar="NAME",
            help="Rehearse add-node, replace-node, upgrade, rollback, reset or accept.",
            autocompletion=completion.operations,
        ),
    ] = ""
    hosts: Hosts = None
    older: Annotated[
        str,
        typer.Option("--from", metavar="VERSION", help="With --operation upgrade or rollback: the release that the cluster has."),
    ] = ""

    def check(self) -> None:
        """Raise BadParameter for an unknown engine, or for options of Argo without it."""
        require_engine(self.engine)
        if self.engine == LOCAL:
            home = {"--home-kubeconfig": self.home_kubeconfig, "--home-context": self.home_context, "--namespace": self.namespace}
            refuse_for_local({**home, "--image": self.image, "--builder-image": self.builder, "--argo-version": self.version})


def rehearse(*, place: RehearseOptions) -> int:
    """Run the whole pipeline, or an operation, against a simulated cluster, with faults if you name some.

    With --engine argo it runs in your own Argo, and the simulated cluster is a pod there: images, rights, volumes and approvals are
    those of a real run, and no machine is touched.
    """
    from workflows.app import rehearsals

    return rehearsals.rehearse(output, place)


def run(
    spec: Spec = "cluster.yaml",
    reuse: Annotated[
        str, typer.Option("--reuse", help="Reuse stages that this earlier run proved.", autocompletion=completion.runs)
    ] = "none",
    only: Only = None,
    until: Until = "",
    *,
    place: RunOptions,
) -> int:
    """Run a spec on real hosts: with the embedded engine, or on the Argo Workflows of a home cluster."""
    from workflows.app.runs import run_start

    return run_start.start(output, spec, place, Wish(reuse=reuse, only=tuple(only or ()), until=until))


def resume(run: Run = "", version: ArgoVersion = "", *, place: LocationOptions) -> int:
    """Continue an interrupted run. For a run that has ended, start a new one that reuses its passed stages.

    Both use the spec and secrets of the earlier run. If those have changed, use: bringup run SPEC --reuse RUN.
    """
    from workflows.app.runs import argo_start, local_start

    if away := _on_argo(run, place):
        return argo_start.resume(output, away, version)
    refuse_for_local({"--argo-version": version})
    return local_start.resume(output, _here(run))


def status(run: Run = "", form: Output = Format.TABLE, *, place: LocationOptions) -> int:
    """Show how far a run is and what it waits for."""
    if away := _on_argo(run, place):
        from workflows.app.runs import argo_runs

        view = argo_runs.status(away)
    else:
        from workflows.app.runs import local_runs

        view = local_runs.status(_here(run))
    if form is not Format.TABLE:
        output.data(view, form)
        return ExitCode.OK
    output.prose([f"run {view['run']}: {view['phase']} {view['message']}".rstrip()])
    output.prose([view["progress"]] if view["progress"] else [])
    output.prose(view["problems"])
    for wait in view["waiting"]:
        subject = wait.get("for") or f"an approval before {wait['stage']}"  # a local run waits for nothing else
        output.prose([f"waits for {subject} since {wait['since']}" + (f": {wait['how']}" if wait["how"] else "")])
        output.prose([f"  it is about {wait['about']}"] if wait.get("about") else [])
    output.table(("stage", "status", "reason"), [(row["stage"], row["status"], row["reason"]) for row in view["stages"]])
    return ExitCode.OK


def runs(form: Output = Format.TABLE) -> int:
    """List the runs that this machine knows, the newest first."""
    from workflows.app import run_list

    home = StateFolder.of_environment()
    listed = run_list.listed_runs(home)
    if not listed and form is Format.TABLE:
        output.note(f"there are no runs in {home.root}; start one with `bringup rehearse` or `bringup run`")
        return ExitCode.OK
    cells = [(row.run, row.engine, row.started, row.state) for row in listed]
    output.listing(("run", "engine", "started", "state"), cells, [asdict(row) for row in listed], form)
    return ExitCode.OK


def watch(run: Run = "", *, place: LocationOptions) -> int:
    """Follow a run until it ends, from any terminal."""
    if away := _on_argo(run, place):
        from workflows.app.runs import argo_watch

        return argo_watch.watch(output, away)
    from workflows.app.runs import local_runs

    return local_runs.follow(output, _here(run))


def logs(
    task: Annotated[str, typer.Argument(help="STAGE or STAGE.TASK, or a part of it.", autocompletion=completion.stages)] = "",
    run: RunOption = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until the run ends.")] = False,
    *,
    place: LocationOptions,
) -> int:
    """Print the logs of a run's tasks, also while they run."""
    from workflows.app.runs import argo_runs, local_runs

    away = argo_runs.locate(run, place)
    folder = away.folder if away else _here(run)

    def read() -> list[tuple[str, str]]:
        return argo_runs.read_logs(away, task) if away else local_runs.log_files(folder, task)

    if follow:
        if away:
            # each reading asks the home cluster for the Workflow and for every pod's log
            return local_runs.follow_logs(output, folder.name, read, lambda: argo_runs.is_over(away), timeouts.POLL_FIRST)
        return local_runs.follow_logs(output, folder.name, read, lambda: local_runs.is_over(folder))
    texts = read()
    if not texts:
        raise local_runs.NoLog(task, folder, argo_runs.nodes(away) if away else local_runs.nodes(folder))
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
    place: LocationOptions,
) -> int:
    """Answer an approval that a run waits for. You approve evidence that you name, or that this machine has shown or shows now."""
    if not who:
        raise typer.BadParameter("an approval needs a name: --as NAME")
    from workflows.app.runs import approval_answers

    if away := _on_argo(run, place):
        answer = approval_answers.answer_on_argo(output, away, who, stage, reject=reject, key=key, evidence=evidence)
    else:
        answer = approval_answers.answer_here(output, _here(run), who, stage, reject=reject, key=key, evidence=evidence)
    output.lines([answer])
    return ExitCode.OK


def cancel(
    run: Run = "",
    now: Annotated[
        bool, typer.Option("--now", help="Kill what runs; on Argo no report is written then (bringup sweep writes it).")
    ] = False,
    *,
    place: LocationOptions,
) -> int:
    """Stop a run: its steps are ended, then report and seal are written."""
    if away := _on_argo(run, place):
        from workflows.app.runs import argo_runs

        argo_runs.cancel(output, away, now=now)
        return ExitCode.OK
    from workflows.app.runs import local_runs

    folder = _here(run)
    local_runs.cancel(folder, now=now)
    output.lines([f"{folder.name} is being cancelled"])
    return ExitCode.OK
