"""Command accept: measure a cluster that is already there, and say in one sentence whether it is accepted."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from workflows.cli import completion, output
from workflows.cli.options import RunOptions, Spec, placed


class AcceptanceLevel(StrEnum):
    """Values of the option `--level`; `workflows.accept.levels` says what each runs."""

    QUICK = "quick"
    STANDARD = "standard"
    FULL = "full"


def register(app: typer.Typer) -> None:
    """Add this module's command to the typer application."""
    app.command()(placed(accept, RunOptions))


def accept(
    spec: Spec = "cluster.yaml",
    level: Annotated[
        AcceptanceLevel | None,
        typer.Option(
            "--level", help="quick (about 10 min), standard (25 min) or full (45 min) on healthy nodes; default: validation.level."
        ),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--nodes", metavar="RANGE", help="Only these nodes and two partners each, as after a repair; repeat for more."
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig of the cluster; default: target.kubeconfig.")
    ] = None,
    reuse: Annotated[
        str, typer.Option("--reuse", help="Reuse what this earlier run proved and still holds.", autocompletion=completion.runs)
    ] = "none",
    *,
    place: RunOptions,
) -> int:
    """Accept a cluster that is already there, whoever built it: the validation of a bring-up alone, with the same gates and report.

    Its last line is one of two sentences: "accepted: N nodes, X GB/s against a floor of Y", or "not accepted:" with the node, rail,
    pair or path at fault and its measurements. `bringup plan SPEC --operation accept` shows what it will do.
    """
    from workflows.app import acceptance

    request = acceptance.AcceptanceRequest(
        spec=spec, level=level.value if level else "", nodes=tuple(nodes or ()), kubeconfig=kubeconfig, reuse=reuse
    )
    return acceptance.accept(output, request, place)
