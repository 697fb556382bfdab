"""Command `read`: recognise captured outputs of tools and say what they show."""

from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.options import Output
from workflows.cli.output import Format


def register(app: typer.Typer) -> None:
    """Add this module's commands to the typer application."""
    app.command()(read)


def read(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Files with captured output; - is standard input.")],
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect", metavar="KEY=VALUE", help="What is right at this site, such as busbw_floor_gbps=480; repeat for more."
        ),
    ] = None,
    form: Output = Format.TABLE,
) -> int:
    """Read captured output of any tool: what it is, whether it shows success, and why not.

    Recognises nccl-tests, NCCL logs, dcgmi, nvidia-smi, ibstat, lspci, perftest, OSU, MPI, Slurm, kubectl, Helm, Argo CD, kernel
    logs and Spack. The exit code is 0 if every output passes, otherwise 65.
    """
    from workflows.app import captured_output

    readings = list(captured_output.read(files, expect or ()))
    if form is not Format.TABLE:
        output.data([entry.data for entry in readings], form)
    else:
        output.prose(line for entry in readings for line in captured_output.sentences(entry))
    return ExitCode.OK if all(entry.reading.is_pass for entry in readings) else ExitCode.GATE_FAILED
