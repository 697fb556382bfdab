"""Emulated and real: the same bring-up, with and without faults, gets the same verdicts on both API servers.

Both sides are played by the simulator in virtual time, side by side. The real side is kube-apiserver with etcd, whose objects are
set back between the cases; it fetches the logs of simulated pods from the simulator, which plays the kubelets' port. Delays have no
share of chance: what is alike happens at one instant. How long a case takes from its snapshot is a figure:
`tests/bench/fault_cases.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from actors.verdicts import Case, Pair, shape, walked
from kubelab.control_plane import ControlPlane

from tests.unit.rehearsal.faults.specs import needed, spec_for
from tests.unit.rehearsal.stage_bench import StageOutcome, stage_bench
from workflows.rehearsal.faults import fault_registry
from workflows.rehearsal.rehearsal_run import RehearsalOptions
from workflows.rehearsal.simulated_cluster import ExistingServer
from workflows.stages import ORDER

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

Find = Callable[[Case], Pair]


def fault_cases() -> Iterator[object]:
    """Every fault, in the order of the stages; what is not in the handful is `long`."""
    for stage in ORDER:
        for fault in fault_registry.faults():
            if fault.stage == stage:
                marks = () if fault.name in HANDFUL else (pytest.mark.long,)
                yield pytest.param(Case(stage, fault.name), id=fault.name, marks=marks)


def selected(items: list[pytest.Item]) -> list[Case]:
    """The cases that this session will ask for."""
    found = (getattr(item, "callspec", None) for item in items)
    return [case for spec in found if spec is not None and isinstance(case := spec.params.get("case"), Case)]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, bare: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Case], Pair]:
    """Return a function that gives a case's outcomes on the emulated and the real API server; each spec is walked through once."""
    done: dict[str, dict[str, Pair]] = {}
    wanted = selected(request.session.items)
    fresh = bare.snapshot()

    def run(needs: str) -> dict[str, Pair]:
        folder = tmp_path_factory.mktemp("verdicts")
        bare.restore(fresh)
        with ExitStack() as stack:
            emulated = stack.enter_context(stage_bench(spec_for(needs), folder / "emulated", RehearsalOptions(jitter=0.0)))
            existing = RehearsalOptions(existing=ExistingServer(kubeconfig=bare.kubeconfig), jitter=0.0)
            real = stack.enter_context(stage_bench(spec_for(needs), folder / "real", existing, bare))
            return walked((emulated, real), needs, wanted)

    def find(case: Case) -> Pair:
        needs = needed(fault_registry.find_fault(case.fault)) if case.fault else ""
        if needs not in done:
            done[needs] = run(needs)
        return done[needs][case.name]

    return find


@pytest.mark.parametrize("case", [Case(stage) for stage in ORDER], ids=ORDER)
def test_both_pass_a_healthy_stage(case: Case, outcomes: Find) -> None:
    assert_alike(*outcomes(case), exit_code=0)


@pytest.mark.sampled_rows(4)
@pytest.mark.parametrize("case", list(fault_cases()))
def test_both_give_the_same_verdict_of_a_fault(case: Case, outcomes: Find) -> None:
    assert_alike(*outcomes(case), exit_code=65)


def assert_alike(emulated: StageOutcome, real: StageOutcome, exit_code: int) -> None:
    print(f"emulated {emulated.seconds:.1f} s, real {real.seconds:.1f} s: {real.verdict.reason if real.verdict else 'no record'}")
    assert shape(real) == shape(emulated), f"emulated: {emulated.verdict}\nreal: {real.verdict}"
    assert real.exit_code == exit_code
