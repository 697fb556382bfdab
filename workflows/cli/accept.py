"""Command accept: measure a cluster that is already there, and say in one sentence whether it is accepted."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from workflows.cli import completion, output
from workflows.cli.options import RunOptions, Spec, placed

NO_REUSE = "none"
"""Value of `--reuse` that reuses no earlier run."""


class AcceptanceLevel(StrEnum):
    """Values of the option `--level`; `workflows.spec.acceptance.acceptance_levels` says what each runs."""

    QUICK = "quick"
    STANDARD = "standard"
    FULL = "full"


@dataclass(frozen=True, kw_only=True)
class AcceptOptions(RunOptions):
    """Options of `accept`: those of every run, and those of an acceptance from a login node of Slurm."""

    slurm: Annotated[bool, typer.Option("--slurm", help="From a login node of any Slurm, without Kubernetes and spec.")] = False
    partition: Annotated[str, typer.Option("--partition", help="With --slurm: partition of the jobs; default: Slurm's.")] = ""
    account: Annotated[str, typer.Option("--account", help="With --slurm: account of the jobs; default: the user's.")] = ""
    floor: Annotated[
        float, typer.Option("--floor", metavar="GB_S", help="With --slurm: least bandwidth between two nodes, in GB/s.")
    ] = 0.0
    gpus_per_node: Annotated[
        str, typer.Option("--gpus-per-node", metavar="[TYPE:]N", help="With --slurm: GRES of each node, such as h200:8.")
    ] = ""
    shared: Annotated[
        str, typer.Option("--shared", metavar="DIR", help="With --slurm: a folder that all nodes mount; default: the home.")
    ] = ""
    script_marks: Annotated[
        str,
        typer.Option(
            "--script-marks", metavar="DIR", help="With --slurm: where prolog and epilog leave prolog.JOBID, epilog.JOBID."
        ),
    ] = ""
    waive_scripts: Annotated[
        bool, typer.Option("--waive-scripts", help="With --slurm: do not prove that prolog and epilog ran; the report says so.")
    ] = False
    allow_drain: Annotated[
        bool, typer.Option("--allow-drain", help="With --slurm: drain and resume a node (needs operator rights).")
    ] = False
    bandwidth_command: Annotated[
        str,
        typer.Option(
            "--bandwidth-command",
            metavar="COMMAND",
            help="With --slurm: MPI program of two ranks that prints sizes and MB/s, as osu_bw.",
        ),
    ] = ""
    mpi: Annotated[str, typer.Option("--mpi", help="With --slurm: value of srun --mpi; default: pmix, else pmi2.")] = ""

    def check(self) -> None:
        """Raise BadParameter for options of Slurm without --slurm, and for those that no run takes."""
        super().check()
        chosen = {
            "--partition": self.partition,
            "--account": self.account,
            "--floor": self.floor,
            "--gpus-per-node": self.gpus_per_node,
            "--shared": self.shared,
            "--script-marks": self.script_marks,
            "--waive-scripts": self.waive_scripts,
            "--allow-drain": self.allow_drain,
            "--bandwidth-command": self.bandwidth_command,
            "--mpi": self.mpi,
        }
        if listed := ", ".join(name for name, value in chosen.items() if value and not self.slurm):
            raise typer.BadParameter(f"{listed}: only with --slurm, for an acceptance from a login node of Slurm")


class AcceptanceReport(StrEnum):
    """Values of the option `--report`."""

    CLUSTERMAX = "clustermax"


def register(app: typer.Typer) -> None:
    """Add this module's command to the typer application."""
    app.command()(placed(accept, AcceptOptions))


def accept(
    context: typer.Context,
    spec: Spec = "cluster.yaml",
    level: Annotated[
        AcceptanceLevel | None,
        typer.Option(
            "--level", help="quick (about 12 min), standard (40 min) or full (70 min) on healthy nodes; default: validation.level."
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
    form: Annotated[
        AcceptanceReport | None, typer.Option("--report", help="Also print this table from the evidence: clustermax.")
    ] = None,
    reuse: Annotated[
        str, typer.Option("--reuse", help="Reuse what this earlier run proved and still holds.", autocompletion=completion.runs)
    ] = NO_REUSE,
    *,
    place: AcceptOptions,
) -> int:
    """Accept a cluster that is already there, whoever built it: the validation of a bring-up alone, with the same gates and report.

    Its last line is one of two sentences: "accepted: N nodes, X GB/s against a floor of Y", or "not accepted:" with the node, rail,
    pair or path at fault and its measurements. `bringup plan SPEC --operation accept` shows what it will do.
    """
    if place.slurm:
        # a spec has a default, so its value does not tell if somebody typed it
        source = context.get_parameter_source("spec")
        typed = spec if source is not None and source.name == "COMMANDLINE" else ""
        refused = {"SPEC": typed, "--report": form, "--kubeconfig": kubeconfig, "--reuse": reuse if reuse != NO_REUSE else ""}
        _refuse_for_slurm(refused)
        return _from_login_node(level, nodes, place)
    from workflows.app import acceptance

    request = acceptance.AcceptanceRequest(
        spec=spec,
        level=level.value if level else "",
        nodes=tuple(nodes or ()),
        kubeconfig=kubeconfig,
        reuse=reuse,
        form=form.value if form else "",
    )
    return acceptance.accept(output, request, place)


def _refuse_for_slurm(choices: Mapping[str, object]) -> None:
    """Raise BadParameter if one of these choices has a value: they are about a cluster with Kubernetes."""
    if listed := ", ".join(name for name, value in choices.items() if value):
        raise typer.BadParameter(f"--slurm accepts a cluster without Kubernetes and without a spec: leave out {listed}")


def _from_login_node(level: AcceptanceLevel | None, nodes: list[str] | None, place: AcceptOptions) -> int:
    """Accept a Slurm cluster from this login node."""
    from workflows.app import slurm_acceptance_runs

    request = slurm_acceptance_runs.SlurmRequest(
        level=(level or AcceptanceLevel.STANDARD).value,
        nodes=tuple(nodes or ()),
        partition=place.partition,
        account=place.account,
        floor=place.floor,
        gpus_per_node=place.gpus_per_node,
        shared=place.shared,
        script_marks=place.script_marks,
        waive_scripts=place.waive_scripts,
        allow_drain=place.allow_drain,
        bandwidth_command=place.bandwidth_command,
        mpi=place.mpi,
    )
    return slurm_acceptance_runs.accept(output, request, place)
