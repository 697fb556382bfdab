"""Commands about the evidence of runs: report, verify, timeline, faults, pull, sweep, diff-runs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from workflows.cli import output
from workflows.cli.options import LocationOptions, Output, Run, placed, read_public_key
from workflows.cli.output import Format
from workflows.engines.folders import StateFolder


def register(app: typer.Typer) -> None:
    """Add this module's commands to the typer application."""
    app.command()(placed(report))
    app.command(name="verify")(placed(check))
    app.command(name="timeline")(placed(incident))
    app.command()(faults)
    app.command()(placed(pull))
    app.command()(placed(sweep))
    app.command(name="diff-runs")(diff_runs)


def report(
    run: Run = "",
    form: Annotated[str, typer.Option("--output", "-o", help="table, json, yaml, html, junit or clustermax.")] = "table",
    for_public: Annotated[bool, typer.Option("--public", help="Leave out hosts, addresses, paths and topology.")] = False,
    out: Annotated[
        str,
        typer.Option("--out", metavar="FILE|FOLDER/", help="Write to this file; or copy evidence and reports, no secrets, here."),
    ] = "",
    *,
    place: LocationOptions,
) -> int:
    """Print the acceptance report of a run from its evidence. The evidence of a run on Argo is fetched first."""
    from workflows.app.runs import run_evidence, run_reports

    if out.endswith("/") or Path(out or "none").is_dir():
        if for_public:
            raise typer.BadParameter("--public is one file, not the evidence: --out FILE")
        copied, target = run_evidence.hand_out(run, place, Path(out))
        output.lines([f"copied {count(copied, 'file')} to {target}, none of its secrets; bringup verify proves them"])
        return ExitCode.OK
    if form not in run_reports.FORMS:
        raise run_reports.NoSuchForm(form)
    evidence = run_evidence.find(run, place)
    content, differences = run_reports.checked_report(evidence, form, for_public=for_public)
    output.note(evidence.note)
    if not out:
        (output.prose if form == Format.TABLE else output.lines)([content.rstrip("\n")])
    else:
        run_reports.write_file(Path(out), content)
        output.lines([f"wrote {out}"])
    return ExitCode.GATE_FAILED if differences else ExitCode.OK


def check(
    run: Annotated[
        str, typer.Argument(metavar="RUN|FOLDER", help="Name of a run, the newest where none is given; or the folder of one.")
    ] = "",
    signer: Annotated[str, typer.Option("--signer", help="NAME=PUBLIC-KEY-FILE whose signature the seal must carry.")] = "",
    *,
    place: LocationOptions,
) -> int:
    """Verify offline that nothing of a run was changed since it was sealed."""
    from workflows.app.runs import run_evidence

    signed_by = _signer(signer)
    is_folder = os.sep in run or Path(run or "none").is_dir()
    folder = Path(run) if is_folder else run_evidence.find(run, place).folder.stored
    problems, cover = run_evidence.check_seal(folder, signed_by)
    output.prose(problems)
    if cover is None:
        output.prose([f"{folder}: {count(len(problems), 'problem')}"])
        return ExitCode.GATE_FAILED
    signed = f" and signed by {signed_by[0]}" if signed_by else ""
    result = f"unchanged since it was sealed{signed}: {count(cover.files, 'file')}"
    output.prose([f"{folder}: {result}", *cover.lines(run_evidence.own_key())])
    return ExitCode.OK


def incident(run: Run = "", form: Output = Format.TABLE, *, place: LocationOptions) -> int:
    """Print everything that happened in a run, in order: a draft of the post-incident note."""
    from workflows.app.runs import run_evidence, run_reports

    evidence = run_evidence.find(run, place)
    output.note(evidence.note)
    if form is Format.TABLE:
        output.prose([run_reports.note(evidence)])
    else:
        output.data(run_reports.moments(evidence), form)
    return ExitCode.OK


def faults(form: Output = Format.TABLE) -> int:
    """List the faults that a rehearsal can inject, then those of stacks, and the gate that must catch each.

    Builds of images and stacks are not simulated: `bringup explain STAGE` names the tests of their faults on real builds.
    """
    from workflows.rehearsal.faults import fault_registry
    from workflows.softwarestack import stack_faults

    simulated = fault_registry.faults()
    names = ("name", "stage", "gate", "node", "summary", "caught_by", "false_green", "test")
    values = [
        {name: getattr(fault, name, "") for name in names} | {"simulated": fault in simulated}
        for fault in (*simulated, *stack_faults.FAULTS)
    ]
    cells = [(str(value["name"]), str(value["gate"]), str(value["summary"])) for value in values]
    output.listing(("fault", "caught by", "what it does"), cells, values, form)
    return ExitCode.OK


def _signer(text_: str) -> tuple[str, str] | None:
    if not text_:
        return None
    name, _, file = text_.partition("=")
    if not file or not Path(file).exists():
        raise typer.BadParameter(f"--signer {text_!r}: write NAME=FILE with an SSH public key")
    return name, read_public_key(Path(file))


def pull(run: Run = "", *, place: LocationOptions) -> int:
    """Copy evidence, report and logs of a run on Argo to this machine. A short-lived pod reads them from the run's store."""
    from workflows.app.runs import argo_runs, run_evidence

    away = argo_runs.locate(run, place)
    if away is None:
        return _lies_here(run)
    files, evidence = run_evidence.brought(away)
    output.lines([f"{count(files, 'file')} of {away.name} are in {evidence.folder.stored}"])
    output.note(evidence.note)
    return ExitCode.OK


def sweep(
    run: Run = "",
    plans: Annotated[
        bool, typer.Option("--plans", help="Instead of a run, clean the home cluster: remove old plans that no run refers to.")
    ] = False,
    *,
    place: LocationOptions,
) -> int:
    """Finish a run whose exit handler did not: write report and seal, and release the target's lease."""
    if plans:
        from workflows.app.runs import argo_installations

        if run:
            raise typer.BadParameter(f"--plans is about all plans of the home cluster: leave out {run}")
        namespace, removed = argo_installations.remove_old_plans(place)
        lines = [f"removed from namespace {namespace}: {name}, its ConfigMaps and its Secret" for name in removed]
        output.lines(lines or [f"namespace {namespace} of the home cluster has no old plan that nothing refers to"])
        return ExitCode.OK
    from workflows.app.runs import argo_runs

    away = argo_runs.find(run, place)
    if away is None:
        from workflows.app.runs import local_start

        output.lines([local_start.sweep(StateFolder.of_environment().find(run))])
        return ExitCode.OK
    output.lines([argo_runs.sweep(away)])
    return ExitCode.OK


def diff_runs(
    run: Annotated[str, typer.Argument(metavar="one", help="Name of a run whose evidence is here.")],
    other: Annotated[str, typer.Argument(help="Name of another.")],
    form: Output = Format.TABLE,
) -> int:
    """Compare the evidence of two runs and print the differences, leaving out times and ids."""
    from workflows.app import run_list

    differing = run_list.differences(StateFolder.of_environment(), run, other)
    if form is not Format.TABLE:
        output.data({"runs": [run, other], "equal": not differing, "differences": list(differing)}, form)
    else:
        output.lines(differing or [f"the evidence of {run} and {other} is equal but for times and ids"])
    return ExitCode.GATE_FAILED if differing else ExitCode.OK


def _lies_here(run: str) -> int:
    folder = StateFolder.of_environment().find(run)
    raise typer.BadParameter(f"run {folder.name} was not on Argo: its evidence lies in {folder.stored}")
