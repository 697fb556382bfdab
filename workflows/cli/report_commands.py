"""Commands about finished runs: report, verify, timeline, faults."""

from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.output import Format
from workflows.engines.folders import Home

Run = Annotated[str, typer.Argument(help="Name of a run; the newest where none is given.")]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(report)
    app.command(name="verify")(check)
    app.command(name="timeline")(incident)
    app.command()(faults)


def report(
    run: Run = "",
    form: Annotated[str, typer.Option("--output", "-o", help="table, json, yaml, html or junit.")] = "table",
    for_public: Annotated[bool, typer.Option("--public", help="Leave out hosts, addresses, paths and topology.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of the terminal.")] = None,
) -> int:
    """Print the acceptance report of a run from its evidence."""
    from workflows.cli import reporting

    content = reporting.report(Home.of_environment(), run, form, for_public=for_public)
    if out is None:
        output.lines([content.rstrip("\n")])
    else:
        out.write_text(content)
        output.lines([f"wrote {out}"])
    return ExitCode.OK


def check(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run: STORE/runs/RUN.")],
    signer: Annotated[str, typer.Option("--signer", help="NAME=PUBLIC-KEY-FILE whose signature the seal must carry.")] = "",
) -> int:
    """Prove offline that nothing of a run was changed since it was sealed."""
    from steps.report import verify

    who = _signer(signer)
    found = verify.problems(folder, who)
    output.lines(found)
    signed = f" and signed by {who[0]}" if who else ""
    output.lines([f"{folder}: {len(found)} problems" if found else f"{folder}: unchanged since it was sealed{signed}"])
    return ExitCode.GATE_FAILED if found else ExitCode.OK


def incident(run: Run = "", form: Output = Format.TABLE) -> int:
    """Print all that happened in a run in its order: a draft of the post-incident note."""
    from workflows.cli import reporting

    if form is Format.TABLE:
        output.lines([reporting.note(Home.of_environment(), run)])
    else:
        output.data(reporting.moments(Home.of_environment(), run), form)
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
    return name, Path(file).read_text()
