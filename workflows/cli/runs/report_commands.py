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
    """Print the acceptance report of a run from its evidence, which is brought here first from a run on Argo."""
    from workflows.cli.runs import reading, reporting

    if out.endswith("/") or Path(out or "none").is_dir():
        if for_public:
            raise typer.BadParameter("--public is one file, not the evidence: --out FILE")
        return _hand_out(reading.find(run, place).folder, Path(out))
    if form not in reporting.FORMS:
        raise reporting.NoSuchForm(form)
    found = reading.find(run, place)
    content = reporting.report(found, form, for_public=for_public)
    found.say()
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
    """Prove offline that nothing of a run was changed since it was sealed."""
    from steps.report import verify
    from workflows.cli.runs import reading

    who = _signer(signer)
    is_folder = os.sep in run or Path(run or "none").is_dir()
    folder = Path(run) if is_folder else reading.find(run, place).folder.stored
    found = verify.problems(folder, who)
    output.lines(found)
    if found:
        output.lines([f"{folder}: {output.count(len(found), 'problem')}"])
    else:
        covered = verify.cover(folder)
        signed = f" and signed by {who[0]}" if who else ""
        said = f"unchanged since it was sealed{signed}: {output.count(covered.files, 'file')}"
        output.lines([f"{folder}: {said}", *covered.lines()])
    return ExitCode.GATE_FAILED if found else ExitCode.OK


def incident(run: Run = "", form: Output = Format.TABLE, *, place: Place) -> int:
    """Print all that happened in a run in its order: a draft of the post-incident note."""
    from workflows.cli.runs import reading, reporting

    found = reading.find(run, place)
    found.say()
    if form is Format.TABLE:
        output.lines([reporting.note(found)])
    else:
        output.data(reporting.moments(found), form)
    return ExitCode.OK


def faults(form: Output = Format.TABLE) -> int:
    """List the faults that a rehearsal can have, and which gate must catch each."""
    from workflows.rehearsal.faults import registry

    every = registry.faults()
    if form is Format.TABLE:
        output.table(("fault", "caught by", "what it does"), [(one.name, one.gate, one.summary) for one in every])
    else:
        names = ("name", "stage", "gate", "node", "summary", "caught_by", "false_green")
        output.data([{name: getattr(one, name) for name in names} for one in every], form)
    return ExitCode.OK


def _signer(text_: str) -> tuple[str, str] | None:
    if not text_:
        return None
    name, _, file = text_.partition("=")
    if not file or not Path(file).exists():
        raise typer.BadParameter(f"--signer {text_!r}: write NAME=FILE with an SSH public key")
    return name, public_keys.read(Path(file))
