"""Commands around the pipeline: exec, simulate, doctor."""

import math
import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.output import Format

Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(name="exec")(execute)
    app.command()(simulate)
    app.command()(doctor)


def execute(
    manifest: Annotated[Path, typer.Argument(help="A Workflow manifest of the portable subset.")],
    record: Annotated[
        Path | None, typer.Option("--record", help="Write the node record in the conformance format to this file.")
    ] = None,
    actions: Annotated[Path | None, typer.Option("--actions", help="Operator actions to play (conformance corpus).")] = None,
) -> int:
    """Run any Workflow manifest of the portable subset on the embedded engine."""
    from workflows.cli.runs import executing
    from workflows.engines.local.execute import execute_manifest

    said: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bringup-record-") as scratch:
        kept = record or Path(scratch) / "record.json"
        code = execute_manifest(manifest, kept, actions, say=said.append)
        if said:
            output.error("".join(said).strip(), "" if manifest.is_file() else "name the file of a Workflow manifest")
        else:
            output.lines(executing.summary(kept))
    return code


def simulate(
    spec: Annotated[str, typer.Argument(help="Spec file, or the name of an example.")],
    kubeconfig_out: Annotated[Path, typer.Option("--kubeconfig-out", help="Where to write the kubeconfig (mode 0600).")],
    fault: Annotated[list[str] | None, typer.Option("--fault", help="Disturb: NAME or NAME:NODE,….")] = None,
    speed: Annotated[float, typer.Option("--speed", help="Simulated seconds a second.")] = 60.0,
    bare: Annotated[bool, typer.Option("--bare", help="Do not bring RKE2 up: only an empty API server.")] = False,
) -> int:
    """Serve the simulated cluster alone, so that kubectl and other tools can look at it. Ctrl-C ends it."""
    from workflows.cli.specs import sources
    from workflows.plan.compiler import compile_plan
    from workflows.rehearsal import serve
    from workflows.rehearsal.rehearse import Options

    if not (math.isfinite(speed) and speed > 0):
        raise typer.BadParameter(f"--speed {speed:g} would stop the time: give a number above 0, as in 60")
    loaded = sources.read(spec)[1]
    plan = compile_plan(loaded)
    Options(faults=fault or ()).check(loaded, plan)
    with serve.serving(plan, kubeconfig_out, faults=fault or (), speed=speed, bare=bare) as where:
        output.lines(
            [f"simulated cluster of {plan.name} at {where}; kubectl --kubeconfig {kubeconfig_out} get nodes; Ctrl-C ends it"]
        )
        serve.until_interrupted()
    return ExitCode.OK


def doctor(form: Output = Format.TABLE) -> int:
    """Tell what is missing on this machine for each kind of use, and how to install it."""
    from workflows.cli import checkup

    found = checkup.every(os.environ)
    if form is not Format.TABLE:
        output.data([{"for": one.use, "needs": one.need, "there": one.there, "install": one.install} for one in found], form)
    else:
        output.table(
            ("for", "needs", "", "how to get it"),
            [(one.use, one.need, "ok" if one.there else "missing", one.install) for one in found],
        )
    return ExitCode.OK if all(one.there for one in found if one.use == checkup.REHEARSAL) else ExitCode.USAGE
