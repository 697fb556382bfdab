"""Beside the real scheduler and the real controllers the simulator plays machines, kubelets and operators: the same verdicts.

The emulated side is played by the simulator alone, in virtual time. The other side has kube-controller-manager and kube-scheduler,
which need wall time: simulated time follows it, many times faster.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from actors.verdicts import Case, Pair, shape, walked
from kubelab import product
from kubelab.control_plane import ControlPlane
from kubelab.lab import Cluster

from tests.unit.rehearsal.faults.specs import spec_for
from tests.unit.rehearsal.stage_bench import stage_bench
from workflows.rehearsal.rehearsal_run import RehearsalOptions
from workflows.rehearsal.simulated_cluster import ExistingServer

REAL = ("namespaces", "garbage", "daemon_sets", "workloads", "jobs", "scheduler")
"""Roles of the simulator that kube-controller-manager and kube-scheduler have there."""

SPEED = 30.0
"""A deadline of 20 minutes is 40 s then: real controllers on a busy machine with two cores lag by some."""

CASES = (
    Case("rke2"),
    Case("base_services"),
    Case("base_services", "cert_manager_webhook_crash"),
)
"""A Deployment, DaemonSets, Jobs with their pods apart, a claim that waits for its first pod, and what fails to come up."""


pytestmark = pytest.mark.long
"""Marked `long`: the tests wait two minutes of wall time, and on a busy machine real controllers are late."""


class Outcomes(NamedTuple):
    """Outcomes of all cases, the pods at the end, and pairs of pod and scheduler that placed it."""

    cases: dict[str, Pair]
    pods: list[dict[str, Any]]
    scheduled: frozenset[tuple[str, str]]


@pytest.fixture(scope="module")
def managed(cluster: Cluster) -> Iterator[ControlPlane]:
    """A control plane with its own controllers and no node."""
    plane = cluster.managed()
    plane.start()
    yield plane
    plane.remove()


@pytest.fixture(scope="module")
def outcomes(managed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """All cases on both sides, in one walk through the stages."""
    folder, fresh = tmp_path_factory.mktemp("beside"), managed.snapshot()
    existing = RehearsalOptions(existing=ExistingServer(kubeconfig=managed.kubeconfig, roles_off=REAL, speed=SPEED))
    with ExitStack() as stack:
        emulated = stack.enter_context(stage_bench(spec_for(""), folder / "emulated"))
        real = stack.enter_context(stage_bench(spec_for(""), folder / "real", existing, managed))
        found = walked((emulated, real), "", CASES)
        pods = json.loads(managed.kubectl("get", "pods", "-A", "-o", "json", "--show-managed-fields"))["items"]
        events = json.loads(managed.kubectl("get", "events", "-A", "-o", "json", "--field-selector", "reason=Scheduled"))["items"]
    managed.restore(fresh)
    sources = {(row["involvedObject"]["name"], row.get("reportingComponent") or row["source"]["component"]) for row in events}
    return Outcomes(found, pods, frozenset(sources))


@pytest.mark.parametrize("one", CASES, ids=[one.name for one in CASES])
def test_both_give_the_same_verdict(one: Case, outcomes: Outcomes) -> None:
    emulated, real = outcomes.cases[one.name]
    print(f"simulated {emulated.seconds:.1f} s, real {real.seconds:.1f} s: {real.verdict.reason if real.verdict else 'no record'}")
    assert shape(real) == shape(emulated), f"simulated: {emulated.verdict}\nreal: {real.verdict}"
    assert (real.exit_code == 0) is not bool(one.fault)


def test_pods_were_made_and_placed_by_the_real_ones(outcomes: Outcomes) -> None:
    """Only the mirror pods of static ones, which belong to their nodes, are the kubelets' own, and so the simulator's."""
    owned = [pod for pod in outcomes.pods if _owner(pod) not in ("", "Node")]
    makers = {row["manager"] for pod in owned for row in pod["metadata"]["managedFields"] if "subresource" not in row}
    assert {_owner(pod) for pod in owned} >= {"ReplicaSet", "DaemonSet", "Job"}
    assert makers == {"kube-controller-manager"}
    scheduled = {name for name, who in outcomes.scheduled if who == "default-scheduler"}
    assert scheduled >= {pod["metadata"]["name"] for pod in owned if "nodeName" in pod["spec"]}


def test_the_whole_pipeline_passes(managed: ControlPlane, outcomes: Outcomes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As a user runs it, after the cases above have left the cluster as it was."""
    assert outcomes.cases
    words = ["--kubeconfig", str(managed.kubeconfig), "--roles-off", ",".join(REAL), "--speed", str(SPEED)]
    done = product.bringup(tmp_path_factory.mktemp("home"), "rehearse", "h200-16", *words)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


def _owner(pod: dict[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences") or [{"kind": ""}]
    return str(owners[0]["kind"])
