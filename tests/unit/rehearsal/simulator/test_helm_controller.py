"""HelmChart to Job to release Secret, and every way in which it goes wrong."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from tests.unit.rehearsal.simulator.harness import Make, User, conditions
from workflows.rehearsal.simulator.api.api_client import decode_object
from workflows.rehearsal.simulator.api.api_kinds import (
    DEPLOYMENTS,
    HELM_CHART_CONFIGS,
    HELM_CHARTS,
    JOBS,
    NAMESPACES,
    SECRETS,
    Obj,
    Ref,
    custom,
)
from workflows.rehearsal.simulator.charts.chart_installers import ChartError, ChartRelease, chart
from workflows.rehearsal.simulator.charts.helm_controller import CLAIMED, HASH
from workflows.rehearsal.simulator.world import World


@chart("demo")
def demo(_world: World, release: ChartRelease) -> None:
    if release.value("broken"):
        raise ChartError("Error: INSTALLATION FAILED: broken values")
    if release.value("monitor"):
        release.put(custom("monitoring.coreos.com", "ServiceMonitor"), {"metadata": {"name": "demo"}, "spec": {}})
    release.deployment("demo", replicas=release.value("replicas", 1))


@pytest.fixture
def user(make: Make) -> User:
    made = make(agents=1)
    made.bring_up()
    return made


def install(user: User, name: str = "demo", **spec: Any) -> None:
    full = {
        "chart": name,
        "version": "v1.0.0",
        "targetNamespace": "demo-system",
        "createNamespace": True,
        "backOffLimit": 2,
        "failurePolicy": "abort",
    }
    user.api.create(HELM_CHARTS, {"metadata": {"name": name, "namespace": "kube-system"}, "spec": full | spec})
    user.simulator.advance(60)


def read(user: User, name: str = "demo") -> Obj:
    found = user.api.get(HELM_CHARTS, name, "kube-system")
    assert found is not None
    return found


def job(user: User) -> Obj:
    found = user.api.get(JOBS, "helm-install-demo", "kube-system")
    assert found is not None
    return found


def secrets(user: User) -> dict[str, str]:
    found = [decode_object(raw) for raw in user.api.list(SECRETS, "demo-system", labels="owner=helm,name=demo") or ()]
    return {secret["metadata"]["name"]: secret["metadata"]["labels"]["status"] for secret in found}


def test_an_install_leaves_claim_job_conditions_release_and_workload(user: User) -> None:
    install(user)
    found = read(user)
    assert CLAIMED in found["metadata"]["annotations"]
    assert found["status"]["jobName"] == "helm-install-demo"
    assert conditions(found) == {"JobCreated": "True", "Failed": "False"}
    assert all("lastTransitionTime" not in entry for entry in found["status"]["conditions"])
    assert conditions(job(user))["Complete"] == "True"
    assert HASH in job(user)["spec"]["template"]["metadata"]["annotations"]
    assert secrets(user) == {"sh.helm.release.v1.demo.v1": "deployed"}
    deployment = user.api.get(DEPLOYMENTS, "demo", "demo-system")
    assert deployment is not None
    user.simulator.advance(30)
    assert conditions(user.api.get(DEPLOYMENTS, "demo", "demo-system") or {})["Available"] == "True"


def test_the_release_secret_holds_what_helm_would_read(user: User) -> None:
    install(user, valuesContent="replicas: 2\n")
    secret = user.api.get(SECRETS, "sh.helm.release.v1.demo.v1", "demo-system")
    assert secret is not None
    assert secret["type"] == "helm.sh/release.v1"
    stored = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
    assert stored["chart"]["metadata"] == {"name": "demo", "version": "v1.0.0", "apiVersion": "v2"}
    assert stored["config"] == {"replicas": 2}
    assert stored["info"]["status"] == "deployed"


def test_a_changed_spec_makes_a_new_job_and_a_new_revision(user: User) -> None:
    install(user)
    before = job(user)
    user.api.merge(HELM_CHARTS, Ref("kube-system", "demo"), {"spec": {"valuesContent": "replicas: 3\n"}})
    user.simulator.advance(60)
    after = job(user)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["template"]["metadata"]["annotations"][HASH] != before["spec"]["template"]["metadata"]["annotations"][HASH]
    assert secrets(user) == {"sh.helm.release.v1.demo.v1": "superseded", "sh.helm.release.v1.demo.v2": "deployed"}


def test_a_helm_chart_config_wins_over_the_chart(user: User) -> None:
    meta = {"name": "demo", "namespace": "kube-system"}
    user.api.create(HELM_CHART_CONFIGS, {"metadata": meta, "spec": {"valuesContent": "replicas: 2\n"}})
    install(user, valuesContent="replicas: 5\n")
    assert (user.api.get(DEPLOYMENTS, "demo", "demo-system") or {})["spec"]["replicas"] == 2


def test_a_failing_chart_ends_as_failed_after_its_retries(user: User) -> None:
    install(user, valuesContent="broken: true\n")
    user.simulator.advance(300)
    failed = next(entry for entry in read(user)["status"]["conditions"] if entry["type"] == "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "Job failed")
    assert conditions(job(user))["Failed"] == "True"
    assert set(secrets(user).values()) == {"failed"}


def test_the_default_policy_tries_again_for_ever(user: User) -> None:
    install(user, valuesContent="broken: true\n", failurePolicy="reinstall", backOffLimit=1)
    seen: set[str] = set()
    for _ in range(40):
        user.simulator.advance(15)
        found = user.api.get(JOBS, "helm-install-demo", "kube-system")
        seen |= {found["metadata"]["uid"]} if found else set()
    assert len(seen) > 2


def test_a_chart_that_needs_missing_crds_says_which(user: User) -> None:
    install(user, valuesContent="monitor: true\n", backOffLimit=1)
    user.simulator.advance(200)
    pods = user.pods("kube-system", labels="helmcharts.helm.cattle.io/chart=demo")
    assert pods == []  # the Job's controller removes a pod that restarts in place
    assert conditions(job(user))["Failed"] == "True"


def test_an_unknown_chart_fails(user: User) -> None:
    install(user, name="demi", failurePolicy="abort", backOffLimit=1)
    user.simulator.advance(200)
    assert conditions(read(user, "demi"))["Failed"] == "True"


def test_a_missing_namespace_fails_unless_it_may_be_created(user: User) -> None:
    install(user, createNamespace=False, backOffLimit=1)
    user.simulator.advance(200)
    assert conditions(read(user))["Failed"] == "True"
    assert user.api.get(NAMESPACES, "demo-system") is None


def test_charts_elsewhere_and_empty_ones_are_ignored(user: User) -> None:
    user.api.create(HELM_CHARTS, {"metadata": {"name": "demo", "namespace": "default"}, "spec": {"chart": "demo"}})
    user.api.create(HELM_CHARTS, {"metadata": {"name": "hollow", "namespace": "kube-system"}, "spec": {}})
    user.simulator.advance(60)
    for name, namespace in (("demo", "default"), ("hollow", "kube-system")):
        found = user.api.get(HELM_CHARTS, name, namespace)
        assert found is not None
        assert CLAIMED not in found["metadata"].get("annotations", {})


def test_deleting_a_chart_uninstalls_it(user: User) -> None:
    install(user)
    user.delete(HELM_CHARTS, "demo", "kube-system")
    user.simulator.advance(60)
    assert user.api.get(HELM_CHARTS, "demo", "kube-system") is None
    assert user.api.get(DEPLOYMENTS, "demo", "demo-system") is None
    assert secrets(user) == {}
    assert user.api.get(JOBS, "helm-install-demo", "kube-system") is None
