"""Commands for single tools: explain, exec, lint, simulate, doctor."""

import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import completion, output
from workflows.cli.options import Output, Spec
from workflows.cli.output import Format


def register(app: typer.Typer) -> None:
    """Add this module's commands to the typer application."""
    app.command()(explain)
    app.command(name="exec")(execute)
    app.command()(lint)
    app.command()(simulate)
    app.command()(doctor)


def explain(
    word: Annotated[
        str,
        typer.Argument(
            help="A field of a spec, a rule such as P02, a stage, a fault, or a gate such as rke2/nodes.",
            autocompletion=completion.entries,
        ),
    ],
) -> int:
    """Explain a field of a spec, a compatibility rule, a stage, a fault or a gate."""
    from workflows.app import reference

    output.prose(reference.explain(word))
    return ExitCode.OK


def execute(
    manifest: Annotated[Path, typer.Argument(help="A Workflow manifest of Argo, of the fields that both engines know.")],
    record: Annotated[
        Path | None, typer.Option("--record", help="Write the node record in the conformance format to this file.")
    ] = None,
    actions: Annotated[
        Path | None, typer.Option("--actions", help="File of operator actions (stop, suspend, retry …) to play while it runs.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the commands run on this machine.")] = False,
) -> int:
    """Run a Workflow manifest on the embedded engine: its commands run on this machine, as you, and in no container.

    `bringup lint` checks a manifest without running it.
    """
    from workflows.app import manifest_runs
    from workflows.render.grammar.findings import refused

    if not yes and not refused(manifest_runs.findings(manifest)):
        _ask(manifest_runs.warning(manifest))
    code, error, summary = manifest_runs.execute(manifest, record, actions, _print_output)
    if error:
        output.error(error, "" if manifest.is_file() else "name the file of a Workflow manifest")
    else:
        output.lines(summary)
    return code


def _ask(warning: list[str]) -> None:
    """Print the warning and ask for a yes. Raises typer.BadParameter if nobody can be asked, typer.Abort after a no."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("\n".join([*warning, "nobody is here to ask whether they may run: add --yes"]))
    output.lines(warning)
    typer.confirm("run them?", abort=True)


def _print_output(node: str, text: str) -> None:
    """Print what a task wrote, each line after the name of its node."""
    output.lines([f"{node}: {line}" for line in text.splitlines()])


def lint(
    manifest: Annotated[Path, typer.Argument(help="A file with a Workflow or WorkflowTemplate of Argo.")],
    form: Output = Format.TABLE,
) -> int:
    """Check a Workflow manifest without running it: Argo's schema and rules, and the fields that both engines run alike.

    Fields that only Argo acts on are noted. The exit code is 64 if the manifest is refused.
    """
    from workflows.app import manifest_runs
    from workflows.render.grammar.findings import refused

    findings = manifest_runs.findings(manifest)
    if form is not Format.TABLE:
        output.data([asdict(finding) for finding in findings], form)
    else:
        output.lines([f"{finding.severity}  {finding}" for finding in findings])
        count = len(refused(findings))
        output.lines([f"{manifest}: {f'{count} of {len(findings)} findings refuse it' if count else 'accepted'}"])
    return ExitCode.USAGE if refused(findings) else ExitCode.OK


def simulate(
    spec: Spec,
    kubeconfig_out: Annotated[Path, typer.Option("--kubeconfig-out", help="Where to write the kubeconfig (mode 0600).")],
    fault: Annotated[list[str] | None, typer.Option("--fault", help="Disturb: NAME or NAME:NODE,….")] = None,
    speed: Annotated[float, typer.Option("--speed", help="Simulated seconds a second.")] = 60.0,
    bare: Annotated[bool, typer.Option("--bare", help="Do not bring RKE2 up: only an empty API server.")] = False,
) -> int:
    """Serve a simulated cluster by itself, for kubectl and other tools. Ctrl-C ends it."""
    from workflows.app import simulations

    if not (math.isfinite(speed) and speed > 0):
        raise typer.BadParameter(f"--speed {speed:g} must be a number above 0, for instance 60")
    simulations.serve(output, spec, kubeconfig_out, faults=fault or (), speed=speed, bare=bare)
    return ExitCode.OK


def doctor(form: Output = Format.TABLE) -> int:
    """Show what each kind of use needs on this machine, what is missing, and how to install it."""
    from workflows.app import requirements

    needs = requirements.every(os.environ)
    values = [{"for": need.use, "needs": need.need, "there": need.there, "install": need.install} for need in needs]
    cells = [(need.use, need.need, "ok" if need.there else "missing", need.install) for need in needs]
    output.listing(("for", "needs", "", "how to get it"), cells, values, form)
    can_rehearse = all(need.there for need in needs if need.use == requirements.REHEARSAL)
    return ExitCode.OK if can_rehearse else ExitCode.USAGE
