"""Acceptance of a cluster that is already there, built by bringup or not: stage validation alone, reached by a kubeconfig."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from steps.contract.runs.operation import Operation, OperationKind
from workflows.app import kubeconfigs
from workflows.app.run_options import Pipeline, StartOptions, UsageError, Wish
from workflows.app.runs import run_evidence, run_reports, run_start
from workflows.app.runs.screen import Screen
from workflows.app.specs import cluster_pipeline, operations, sources
from workflows.engines.folders import StateFolder
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.spec import ClusterSpec, floor_table
from workflows.spec.acceptance.acceptance_levels import LEVELS
from workflows.spec.fields import SecretRef


@dataclass(frozen=True, kw_only=True)
class AcceptanceRequest:
    """Choices of an acceptance. Without `level` or `kubeconfig` the spec decides; without `nodes` all GPU nodes are measured."""

    spec: str
    level: str = ""
    nodes: Sequence[str] = ()
    kubeconfig: Path | None = None
    reuse: str = "none"
    form: str = ""
    """A form of `run_reports.FORMS` to print before the last sentence; empty: none."""


class _StoredSentence(msgspec.Struct, frozen=True):
    """The part of a stored report that an acceptance prints last."""

    acceptance: str = ""


def accept(screen: Screen, request: AcceptanceRequest, options: StartOptions) -> int:
    """Run the acceptance, follow it, print its sentence last, and return the exit code.

    Raises UsageError if no kubeconfig leads to the cluster, and the errors of a plan.
    """
    spec, operation = planned(request)
    if spec.target.kubeconfig is None:
        raise UsageError(
            f"{spec.name}: no kubeconfig leads to the cluster: give --kubeconfig FILE, or write target.kubeconfig in the spec"
        )
    path = sources.find(request.spec)
    screen.lines(floor_lines(spec, datetime.date.today()))

    def plan(_: Path, loaded: ClusterSpec, wish: Wish) -> Plan:
        return compile_plan(loaded, only=wish.only, operation=wish.operation)

    def ended(run: str, code: int) -> int:
        if request.form:
            screen.lines(
                [run_reports.report(run_evidence.kept(StateFolder.of_environment().find(run)), request.form, for_public=False)]
            )
        if sentence := last_sentence(run):
            screen.lines([sentence])
        return code

    pipeline = Pipeline(cluster_pipeline.BRINGUP.kind, lambda _: (path, spec), plan, ended)
    wish = Wish(reuse=request.reuse, only=operations.only(operation), operation=operation)
    return run_start.start(screen, request.spec, options, pipeline=pipeline, wish=wish)


def planned(request: AcceptanceRequest) -> tuple[ClusterSpec, Operation]:
    """Return the spec with the request's level and kubeconfig, and the operation with the nodes to measure and their partners."""
    spec = sources.read(request.spec)[1]
    if request.level:
        spec = spec.model_copy(update={"validation": spec.validation.model_copy(update={"level": request.level})})
    if request.kubeconfig is not None:
        kubeconfigs.require(request.kubeconfig, "--kubeconfig")
        reference = SecretRef(file=str(request.kubeconfig.absolute()))
        spec = spec.model_copy(update={"target": spec.target.model_copy(update={"kubeconfig": reference})})
    nodes = operations.names(request.nodes, "--nodes")
    if strange := sorted(nodes - {machine.name for machine in spec.gpu_machines}):
        raise UsageError(f"--nodes {', '.join(strange)}: not among the GPU machines of {spec.name}")
    return spec, operations.scoped(spec, Operation(kind=OperationKind.ACCEPT, hosts=nodes))


def floor_lines(spec: ClusterSpec, today: datetime.date) -> list[str]:
    """Return a line for each floor that comes from the published table, with source and date; stale ones say what to write."""
    accelerator, nccl = spec.accelerator, spec.validation.nccl
    if accelerator is None:
        return []
    own_floors = {"validation.nccl.intra_node_floor_gb_s": (nccl.intra_node_floor_gb_s, "all_reduce", "")}
    if LEVELS[spec.validation.level].measures_gpus:
        own_floors["validation.gpu_floors.host_gb_s"] = (spec.validation.gpu_floors.host_gb_s, "host_copy", "")
        own_floors["validation.gpu_floors.peer_gb_s"] = (spec.validation.gpu_floors.peer_gb_s, "peer_copy", "")
    if spec.fabric.kind != "none":
        own_floors["validation.ib_write_bw_floor_gbit_s"] = (
            spec.validation.ib_write_bw_floor_gbit_s,
            "ib_write_bw",
            spec.fabric.kind,
        )
    lines = []
    for key, (own, operation, fabric) in own_floors.items():
        entry = None if own else floor_table.resolve(accelerator.facts.name, operation, nodes=1, fabric=fabric)
        if entry is not None:
            stale = f"; that is long ago: measure a baseline of this site and write {key}" if entry.is_stale(today) else ""
            lines.append(f"floor of {operation} for {accelerator.facts.name}: {entry.sentence}{stale}")
    return lines


def last_sentence(run: str) -> str:
    """Return the sentence of an acceptance that ended on this machine; empty if it left no report here."""
    report = StateFolder.of_environment().run(run).stored / "report" / "report.json"
    if not report.exists():
        return ""
    return msgspec.json.decode(report.read_bytes(), type=_StoredSentence).acceptance
