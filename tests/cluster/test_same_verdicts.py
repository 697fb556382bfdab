"""Emulated and real: the same bring-up, with and without faults, gets the same verdicts on both API servers.

Both sides are played by the simulator in virtual time. The real side is kube-apiserver with etcd, whose objects are set back
between the cases; a stand-in for the kubelets' port serves the logs of simulated pods.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from kubelab import kubelet_port
from kubelab.control_plane import ControlPlane
from kubelab.keeper import RealState

from workflows import examples
from workflows.rehearsal.faults import registry
from workflows.rehearsal.faults.registry import Fault
from workflows.rehearsal.processes import Existing
from workflows.rehearsal.rehearse import Options
from workflows.rehearsal.stand import Outcome, Stand, stand
from workflows.spec import ClusterSpec, load
from workflows.stages import ORDER

BESIDE = {
    "sharing.mode=time_slicing": "sharing: {mode: time_slicing, replicas: 4}\n",
    "sharing.mode=mig": "sharing: {mode: mig, profile: 1g.18gb}\n",
}
"""What a spec needs beside the example, by what faults need."""

HANDFUL = (
    "clock_skew",
    "kubelet_version_skew",
    "chart_repo_unreachable",
    "cert_manager_webhook_crash",
    "clusterpolicy_stale_ready",
    "foreign_nfd",
    "rdma_no_devices",
    "gang_binds_partially",
    "slurm_nodes_drained",
    "nccl_socket_fallback",
)
"""Faults of every stage but `sharing`, which needs other specs: what the tier has time for."""

Pair = tuple[Outcome, Outcome]
Find = Callable[["Case"], Pair]


@dataclass(frozen=True)
class Case:
    """One stage with one fault; without a fault the name is that of the stage."""

    stage: str
    fault: str = ""

    @property
    def name(self) -> str:
        return self.fault or f"healthy-{self.stage}"


@functools.cache
def spec_for(needs: str) -> ClusterSpec:
    return load(examples.path("h200-16").read_text() + BESIDE.get(needs, ""))


def needed(fault: Fault) -> str:
    return "" if fault.fits(spec_for("")) else fault.needs


def cases() -> Iterator[object]:
    """Every healthy stage and every fault; what is not in the handful is `long`."""
    for stage in ORDER:
        yield pytest.param(Case(stage), id=f"healthy-{stage}")
        for fault in registry.faults():
            if fault.stage == stage:
                marks = () if fault.name in HANDFUL else (pytest.mark.long,)
                yield pytest.param(Case(stage, fault.name), id=fault.name, marks=marks)


def selected(items: list[pytest.Item]) -> list[Case]:
    """The cases that this session will ask for."""
    found = (getattr(item, "callspec", None) for item in items)
    return [case for spec in found if spec is not None and isinstance(case := spec.params.get("case"), Case)]


def walk(places: tuple[Stand, Stand], needs: str, wanted: list[Case]) -> dict[str, Pair]:
    """Both stands from stage to stage: each wanted fault from a snapshot before its stage, then healthy to reach the next."""
    faults = {case.fault for case in wanted if case.fault and needed(registry.find(case.fault)) == needs}
    last = max(ORDER.index(case.stage) for case in wanted if not needs or case.fault in faults)
    done: dict[str, Pair] = {}
    for stage in ORDER[: last + 1]:
        before = [place.snapshot() for place in places]
        for name in [fault.name for fault in registry.faults() if fault.stage == stage and fault.name in faults]:
            for place, snapshot in zip(places, before, strict=True):
                place.restore(snapshot, [name])
            done[name] = (places[0].run(stage), places[1].run(stage))
            for place, snapshot in zip(places, before, strict=True):
                place.restore(snapshot)
        done[f"healthy-{stage}"] = (places[0].run(stage), places[1].run(stage))
    return done


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, bare: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Case], Pair]:
    """What became of a case on the emulated and on the real API server; each spec is walked through once."""
    done: dict[str, dict[str, Pair]] = {}
    wanted = selected(request.session.items)
    fresh = bare.snapshot()

    def run(needs: str) -> dict[str, Pair]:
        folder = tmp_path_factory.mktemp("verdicts")
        bare.restore(fresh)
        with ExitStack() as stack:
            logs = stack.enter_context(kubelet_port.serving(folder / "kubelets"))
            existing = Existing(kubeconfig=bare.kubeconfig, pod_logs=logs)
            emulated = stack.enter_context(stand(spec_for(needs), folder / "emulated"))
            real = stack.enter_context(
                stand(spec_for(needs), folder / "real", Options(existing=existing), RealState(bare, logs)),
            )
            return walk((emulated, real), needs, wanted)

    def find(case: Case) -> Pair:
        needs = needed(registry.find(case.fault)) if case.fault else ""
        if needs not in done:
            done[needs] = run(needs)
        return done[needs][case.name]

    return find


def shape(outcome: Outcome) -> dict[str, object]:
    """What two runs must agree on: everything but times and wording."""
    verdict = outcome.verdict
    assert verdict is not None, "the judge left no record"
    nodes = {row.node: (row.status, row.failure_class) for row in verdict.nodes}
    return {
        "exit code": outcome.exit_code,
        "gate": verdict.gate,
        "status": verdict.status,
        "class": verdict.failure_class,
        "nodes": nodes,
    }


@pytest.mark.parametrize("case", list(cases()))
def test_both_give_the_same_verdict(case: Case, outcomes: Find) -> None:
    emulated, real = outcomes(case)
    print(f"emulated {emulated.seconds:.1f} s, real {real.seconds:.1f} s: {real.verdict.reason if real.verdict else 'no record'}")
    assert shape(real) == shape(emulated), f"emulated: {emulated.verdict}\nreal: {real.verdict}"
    assert (real.exit_code == 0) is not bool(case.fault)
