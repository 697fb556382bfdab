"""Rehearsals of many faults: each stage from a snapshot with each of its faults, or a whole bring-up with one fault."""

import dataclasses
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from steps.clients.store import Store
from steps.contract.verdict import Verdict
from tests.unit.rehearsal import asking
from tests.unit.rehearsal.stage_bench import EmulatedSnapshots, Planner, Snapshot, StageBench, StageOutcome, bringup_planner
from workflows import bringup
from workflows.engines.folders import RunFolder, StateFolder
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.rehearsal import approver
from workflows.rehearsal.apiserver.routing import RequestKind
from workflows.rehearsal.faults.fault_registry import Fault, faults
from workflows.rehearsal.rehearsal_run import RehearsalOptions, rehearse
from workflows.rehearsal.simulated_cluster import SimulatedCluster, fleet_document, simulated_cluster, write_fleet
from workflows.render.bundle import Bundle, render
from workflows.spec import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class FaultResult:
    """The result of one fault, or of a healthy stage (empty `fault`). `problem` is empty if the result is as expected.

    `asked` holds the kinds of requests that the stage's steps sent; a whole rehearsal leaves it empty.
    """

    stage: str
    fault: str
    gate: str
    outcome: StageOutcome
    problem: str
    asked: frozenset[RequestKind] = frozenset()


class FaultSweeps:
    """Sweeps over several specs. Specs with equal fleets share a simulated cluster; stages that they begin with alike run once."""

    def __init__(self, folder: Path, options: RehearsalOptions | None = None) -> None:
        self._folder = folder
        self._options = options or RehearsalOptions()
        self._stack = ExitStack()
        self._fleets: dict[bytes, _FleetSweeps] = {}

    def sweep(
        self, spec: ClusterSpec, only: Sequence[str] = (), until: str = "", *, ends_healthy: bool = True
    ) -> Iterator[FaultResult]:
        """Yield the result of every fault of every planned stage in order, and of each stage without a fault.

        `only` limits the sweep to named faults, `until` names the last stage. Unless the sweep `ends_healthy`, the last stage runs
        with its faults alone.
        """
        document = fleet_document(compile_plan(spec))
        if document not in self._fleets:
            folder = self._folder / f"fleet-{len(self._fleets)}"
            folder.mkdir(parents=True)
            fleet = write_fleet(folder, compile_plan(spec))
            cluster = self._stack.enter_context(simulated_cluster(folder / "cluster", fleet, self._options.arguments()))
            self._fleets[document] = _FleetSweeps(cluster, folder)
        yield from self._fleets[document].sweep(spec, only, until, ends_healthy)

    def close(self) -> None:
        """Stop all simulated clusters."""
        self._stack.close()


@dataclass(frozen=True)
class _HealthyStage:
    """The result of a stage without a fault, and the state of the cluster after it."""

    result: FaultResult
    after: Snapshot


class _FleetSweeps:
    """The sweeps of specs with one fleet, in one simulated cluster."""

    def __init__(self, cluster: SimulatedCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._begin: Snapshot | None = None
        self._specs = 0
        self._healthy: dict[tuple[str, ...], _HealthyStage] = {}
        """By the digests of the plans of this stage and of those before it. A digest covers all that decides what a run does."""

    def sweep(self, spec: ClusterSpec, only: Sequence[str], until: str, ends_healthy: bool) -> Iterator[FaultResult]:
        """Yield results as `FaultSweeps.sweep` does."""
        self._specs += 1
        keeper = EmulatedSnapshots(self._cluster)
        bench = StageBench(_judged_only(bringup_planner(spec)), self._cluster, keeper, self._folder / f"spec-{self._specs}")
        self._begin = before = self._begin or bench.snapshot()
        digests: tuple[str, ...] = ()
        stages = compile_plan(spec, until=until).stages
        for stage in stages:
            for fault in faults():
                if fault.stage == stage.id and fault.fits(spec) and (not only or fault.name in only):
                    bench.restore(before, [fault.name])
                    yield self._run(bench, stage.id, fault)
            if stage is stages[-1] and not ends_healthy:
                return
            digests = (*digests, compile_plan(spec, only=[stage.id]).digest)
            if digests not in self._healthy:
                bench.restore(before)
                self._healthy[digests] = _HealthyStage(self._run(bench, stage.id), bench.snapshot())
            healthy = self._healthy[digests]
            yield healthy.result
            before = healthy.after

    def _run(self, bench: StageBench, stage: str, fault: Fault | None = None) -> FaultResult:
        kubeconfig = self._cluster.kubeconfig
        asking.forget(kubeconfig)
        outcome = bench.run(stage)
        return FaultResult(
            stage=stage,
            fault=fault.name if fault else "",
            gate=fault.gate if fault else "",
            outcome=outcome,
            problem=missed(fault, outcome) if fault else _alarm(outcome),
            asked=frozenset(asking.asked(kubeconfig)),
        )


def _judged_only(planner: Planner) -> Planner:
    """Return a planner whose runs end with their judge.

    Report and seal, which whole rehearsals show, would take a tenth of the CPU time of each fault.
    """

    def planned(only: Sequence[str]) -> tuple[Plan, Bundle]:
        plan, bundle = planner(only)
        spec = {key: value for key, value in bundle.template["spec"].items() if key != "onExit"}
        return plan, dataclasses.replace(bundle, template={**bundle.template, "spec": spec})

    return planned


def sweep_faults(
    spec: ClusterSpec, folder: Path, options: RehearsalOptions | None = None, only: Sequence[str] = (), until: str = ""
) -> Iterator[FaultResult]:
    """Yield the results of one spec as `FaultSweeps.sweep` does."""
    with closing(FaultSweeps(folder, options)) as sweeps:
        yield from sweeps.sweep(spec, only, until)


def rehearse_with_fault(spec: ClusterSpec, fault: Fault, folder: Path) -> FaultResult:
    """Rehearse a whole bring-up with a fault in force from the start; the result is that of the first gate that does not pass."""
    began = time.monotonic()
    plan = compile_plan(spec)
    run = StateFolder(folder).run(fault.name.replace("_", "-"))
    result = rehearse(
        run, plan, render(plan, bringup.build), RehearsalOptions(faults=[fault.name]), [approver.approving_observer(run)]
    )
    stage, verdict = _first_refusal(plan, run)
    outcome = StageOutcome(stage=stage, verdict=verdict, exit_code=result.exit_code, seconds=time.monotonic() - began)
    return FaultResult(stage=stage, fault=fault.name, gate=fault.gate, outcome=outcome, problem=missed(fault, outcome))


def _first_refusal(plan: Plan, run: RunFolder) -> tuple[str, Verdict | None]:
    """Return the first stage whose judge did not pass, with its verdict; otherwise the last stage that was judged."""
    last: tuple[str, Verdict | None] = ("", None)
    for stage in plan.stages:
        records = Store(run.home.store).records(run.name, stage.id, "judge")
        verdict = records[0].verdict if records else None
        if verdict is None:
            break
        last = stage.id, verdict
        if not verdict.is_pass:
            break
    return last


def missed(fault: Fault, outcome: StageOutcome) -> str:
    """Return why the result of a fault is not as expected; empty if the named gate caught it with its cause."""
    verdict = outcome.verdict
    if verdict is None:
        return f"{fault.gate} should have caught it, but the judge left no record"
    if verdict.is_pass:
        return f"{fault.gate} should have caught it, but the stage passed: {verdict.reason}"
    if verdict.gate != fault.gate:
        return f"{fault.gate} should have caught it, but {verdict.gate} did: {verdict.reason}"
    if not (verdict.seen and verdict.expected and verdict.next_step):
        return f"{verdict.gate} caught it without saying what was seen, expected, and what to do next: {verdict.reason}"
    if not re.search(fault.cause, verdict.reason):
        return f"{verdict.gate} caught it for another cause than {fault.cause!r}: {verdict.reason}"
    return ""


def _alarm(outcome: StageOutcome) -> str:
    if outcome.verdict is None:
        return "the healthy stage left no record of its judge"
    return "" if outcome.verdict.is_pass else f"false alarm: {outcome.verdict.gate}: {outcome.verdict.reason}"
