"""The real helm-controller plays a HelmChart by a Job whose real pod runs the real helm; our probes and gates read it right."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubelab import box
from kubelab.lab import Cluster

from steps.clients.kube.client import Kube
from steps.contract.objects.charts import Release, ReleaseState, value_digests
from steps.contract.verdict import FailureClass, Status, Verdict
from steps.runtime.watching import keep_install_logs
from steps.stages.base_services.contract import ControlObservation
from steps.stages.shared import gate_charts as gates
from steps.stages.shared import probe_charts

INSTALL_SECONDS = 90.0
"""Controller, Job, pod and helm take about ten on two idle cores."""

Install = Callable[..., Release]
Seen = tuple[ReleaseState, Verdict | None]
"""Observation of a release by the product's probe, and the gate's verdict if something is wrong."""


@pytest.fixture(scope="module")
def kube(cluster: Cluster) -> Kube:
    return Kube.from_file(cluster.plane.kubeconfig)


@pytest.fixture
def install(cluster: Cluster) -> Iterator[Install]:
    """Applies a HelmChart as the pipeline does; it is gone after the test."""
    made: list[str] = []

    def apply(name: str, chart: str, version: str, **spec: Any) -> Release:
        made.append(name)
        wanted = {"chart": chart, "version": version, "repo": "https://charts.invalid", "targetNamespace": name}
        rules = {"createNamespace": True, "backOffLimit": 3, "failurePolicy": "abort", "timeout": "30s"}
        body = {"apiVersion": "helm.cattle.io/v1", "kind": "HelmChart", "metadata": {"name": name, "namespace": "kube-system"}}
        text = json.dumps(body | {"spec": wanted | rules | spec})
        cluster.plane.kubectl("apply", "--server-side", "--field-manager=bringup", "-f", "-", stdin=text)
        return Release(name=name, namespace=name, version=version, values=value_digests(spec.get("values", {})))

    yield apply
    for name in made:
        cluster.plane.kubectl("-n", "kube-system", "delete", "helmchart", name, "--ignore-not-found", "--timeout=60s")


def seen(kube: Kube, release: Release) -> Seen:
    (state,) = probe_charts.observe(kube, [release])
    finding = gates.problem([state], [release])
    return state, finding.verdict("test") if finding else None


def until(kube: Kube, release: Release, good: Callable[[ReleaseState, Verdict | None], bool]) -> Seen:
    return box.seen(lambda: seen(kube, release), lambda found: good(*found), "helm-controller", INSTALL_SECONDS)


def test_a_chart_is_installed_by_a_real_pod_and_passes_our_gate(cluster: Cluster, kube: Kube, install: Install) -> None:
    release = install("small", "small", "1.2.3", values={"greeting": "from values"})
    state, _ = until(kube, release, lambda _, problem: problem is None)
    assert state.chart is not None
    assert state.chart.managed
    assert state.job is not None
    assert state.job.complete
    assert state.newest is not None
    assert (state.newest.number, state.newest.status, state.newest.chart_version) == (1, "deployed", "1.2.3")
    assert [(entry.kind, entry.name) for entry in state.workloads] == [("Deployment", "small")]
    said = cluster.plane.kubectl("-n", "small", "get", "configmap", "small", "-o", "jsonpath={.data.greeting}")
    assert said == "from values"


def test_new_values_make_a_second_revision_and_the_gate_waits_for_it(kube: Kube, install: Install) -> None:
    release = install("again", "small", "1.2.3")
    until(kube, release, lambda _, problem: problem is None)
    changed = install("again", "small", "1.2.3", values={"greeting": "new"})
    assert seen(kube, changed)[1] is not None, "the gate took the old Job for the new values"
    state, _ = until(kube, changed, lambda _, problem: problem is None)
    assert state.newest is not None
    assert state.newest.number == 2
    drift = seen(kube, release)[1]
    assert drift is not None
    assert "other values than planned in greeting" in drift.reason


@pytest.mark.parametrize(
    ("chart", "version", "said"),
    [("broken", "0.1.0", "no matches for kind"), ("small", "9.9.9", "not found")],
    ids=["missing-kind", "missing-version"],
)
def test_a_broken_chart_names_its_cause_while_helm_tries_and_then_fails_for_good(
    kube: Kube, install: Install, chart: str, version: str, said: str
) -> None:
    """Helm stores no release for these. The pod goes with its log when the Job has failed: who waits keeps what it told."""
    release = install(f"{chart}-{version[0]}", chart, version, backOffLimit=1)
    before, problem = until(kube, release, lambda _, found: found is not None and said in found.reason)
    assert problem is not None
    assert problem.failure_class is FailureClass.DEPENDENCY, problem.reason
    state, problem = until(kube, release, lambda state, _: bool(state.job and state.job.failed))
    assert problem is not None
    assert (problem.status, problem.final, state.newest) == (Status.FAIL, True, None), problem.reason
    assert "BackoffLimitExceeded" in (state.job.failed if state.job else "")
    kept = keep_install_logs(ControlObservation(releases=(state,)), ControlObservation(releases=(before,)))
    finding = gates.problem(kept.releases, [release])
    assert finding is not None
    told = finding.verdict("test")
    assert (told.failure_class, said in told.reason) == (FailureClass.DEPENDENCY, True), told.reason


def test_an_object_that_the_api_server_refuses_is_in_helms_own_record(kube: Kube, install: Install) -> None:
    release = install("refused", "refused", "0.1.0", backOffLimit=1)
    state, problem = until(kube, release, lambda state, _: bool(state.job and state.job.failed))
    assert problem is not None
    assert (problem.status, problem.final, problem.failure_class) == (Status.FAIL, True, FailureClass.APPLY), problem.reason
    assert state.newest is not None
    assert (state.newest.status, "is invalid" in state.newest.description) == ("failed", True), state.newest
