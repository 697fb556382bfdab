"""Commands about finished runs: report, verify, timeline, faults."""

import os
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output, public_keys
from workflows.cli.argo.options import Place, placed
from workflows.cli.output import Format
from workflows.engines.folders import RunFolder

Run = Annotated[str, typer.Argument(help="Name of a run; the newest where none is given.")]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(placed(report))
    app.command(name="verify")(placed(check))
    app.command(name="timeline")(placed(incident))
    app.command()(faults)


def report(
    run: Run = "",
    form: Annotated[str, typer.Option("--output", "-o", help="table, json, yaml, html or junit.")] = "table",
    for_public: Annotated[bool, typer.Option("--public", help="Leave out hosts, addresses, paths and topology.")] = False,
    out: Annotated[
        str,
        typer.Option("--out", metavar="FILE|FOLDER/", help="Write to this file; or copy evidence and reports, no secrets, here."),
    ] = "",
    *,
    place: Place,
) -> int:
    """Print the acceptance report of a run from its evidence. The evidence of a run on Argo is fetched first."""
    from workflows.cli.runs import reading, reporting

    if out.endswith("/") or Path(out or "none").is_dir():
        if for_public:
            raise typer.BadParameter("--public is one file, not the evidence: --out FILE")
        return _hand_out(reading.find(run, place).folder, Path(out))
    if form not in reporting.FORMS:
        raise reporting.NoSuchForm(form)
    evidence = reading.find(run, place)
    content = reporting.report(evidence, form, for_public=for_public)
    evidence.say()
    if not out:
        output.lines([content.rstrip("\n")])
    else:
        Path(out).write_text(content)
        output.lines([f"wrote {out}"])
    return ExitCode.OK


def _hand_out(folder: RunFolder, out: Path) -> int:
    from steps.report import verify

    copied = verify.hand_out(folder.stored, out / folder.name)
    output.lines([f"copied {output.count(copied, 'file')} to {out / folder.name}, none of its secrets; bringup verify proves them"])
    return ExitCode.OK


def check(
    run: Annotated[
        str, typer.Argument(metavar="RUN|FOLDER", help="Name of a run, the newest where none is given; or the folder of one.")
    ] = "",
    signer: Annotated[str, typer.Option("--signer", help="NAME=PUBLIC-KEY-FILE whose signature the seal must carry.")] = "",
    *,
    place: Place,
) -> int:
    """Verify offline that nothing of a run was changed since it was sealed."""
    from steps.report import verify
    from workflows.cli.runs import reading

    signed_by = _signer(signer)
    is_folder = os.sep in run or Path(run or "none").is_dir()
    folder = Path(run) if is_folder else reading.find(run, place).folder.stored
    problems = verify.problems(folder, signed_by)
    output.lines(problems)
    if problems:
        output.lines([f"{folder}: {output.count(len(problems), 'problem')}"])
    else:
        covered = verify.cover(folder)
        signed = f" and signed by {signed_by[0]}" if signed_by else ""
        result = f"unchanged since it was sealed{signed}: {output.count(covered.files, 'file')}"
        output.lines([f"{folder}: {result}", *covered.lines()])
    return ExitCode.GATE_FAILED if problems else ExitCode.OK


def incident(run: Run = "", form: Output = Format.TABLE, *, place: Place) -> int:
    """Print everything that happened in a run, in order: a draft of the post-incident note."""
    from workflows.cli.runs import reading, reporting

    evidence = reading.find(run, place)
    evidence.say()
    if form is Format.TABLE:
        output.lines([reporting.note(evidence)])
    else:
        output.data(reporting.moments(evidence), form)
    return ExitCode.OK


def faults(form: Output = Format.TABLE) -> int:
    """List the faults that a rehearsal can inject, and the gate that must catch each."""
    from workflows.rehearsal.faults import fault_registry

    all_faults = fault_registry.faults()
    if form is Format.TABLE:
        output.table(("fault", "caught by", "what it does"), [(fault.name, fault.gate, fault.summary) for fault in all_faults])
    else:
        names = ("name", "stage", "gate", "node", "summary", "caught_by", "false_green")
        output.data([{name: getattr(fault, name) for name in names} for fault in all_faults], form)
    return ExitCode.OK


def _signer(text_: str) -> tuple[str, str] | None:
    if not text_:
        return None
    name, _, file = text_.partition("=")
    if not file or not Path(file).exists():
        raise typer.BadParameter(f"--signer {text_!r}: write NAME=FILE with an SSH public key")
    return name, public_keys.read(Path(file))
