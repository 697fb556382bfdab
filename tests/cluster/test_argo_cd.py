"""The real Argo CD delivers what we render; our probe and gate read its real status right, good or of any failure class."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from actors.argo_cd import ArgoCd
from actors.delivered import NOBODY, Case, Site
from actors.sources import PASSWORD, USER, Sources

from steps.clients.kube.client import Kube
from steps.contract.objects.charts import ReleaseState
from steps.contract.verdict import FailureClass, Status, Verdict

CLOSED = "http://127.0.0.1:1"
"""Nobody listens there."""

GOOD = Case("good", values={"greeting": "from Git"})
FAILING = (
    Case("unrendered", "incomplete", "0.1.0", failure=FailureClass.MANIFEST_GENERATION, said="hosts is not set"),
    Case("vanishing", "vanishing", "0.1.0", failure=FailureClass.COMPARISON, said="OutOfSync", status=Status.INCONCLUSIVE),
    Case("owner", "shared", "0.1.0", failure=FailureClass.COMPARISON, said="of-two-owners is part of applications"),
    Case("owner-too", "shared", "0.1.0", failure=FailureClass.COMPARISON, said="of-two-owners is part of applications"),
    Case("refused", "refused", "0.1.0", failure=FailureClass.APPLY, said="does not match template"),
    Case(
        "unready", "pods", "0.1.0", {"ready": ["false"]}, failure=FailureClass.HEALTH, said="Degraded", status=Status.INCONCLUSIVE
    ),
    Case("outside", project="elsewhere", failure=FailureClass.PERMISSION, said="allowed destinations in project"),
    Case("kind", "shared", "0.1.0", project="namespaced", failure=FailureClass.PERMISSION, said="not permitted in project"),
    Case("password", git="closed", failure=FailureClass.PERMISSION, said="failed to get git client"),
    Case(
        "crashing",
        "pods",
        "0.1.0",
        {"command": ["false"], "ready": ["false"]},  # ready for a moment would be progress, and begin its deadline anew
        failure=FailureClass.RUNTIME,
        said="Degraded",
        status=Status.INCONCLUSIVE,
    ),
    Case(
        "kindless", "broken", "0.1.0", failure=FailureClass.DEPENDENCY, said="could not find monitoring.example.com/ServiceMonitor"
    ),
    Case("unreachable", charts=CLOSED, failure=FailureClass.DEPENDENCY, said="connection refused"),
    Case("unpublished", version="9.9.9", failure=FailureClass.DEPENDENCY, said='"9.9.9" not found'),
)
CHANGED = Case("changed", "pods", "0.1.0", {"selector": "one"})
ROOTS = (
    ("password-root", "closed", "v1", FailureClass.PERMISSION, "authentication required"),
    ("untagged-root", "platform", "v0", FailureClass.MANIFEST_GENERATION, "v0"),
    ("empty-root", "platform", "v1", FailureClass.MANIFEST_GENERATION, "app path does not exist"),
    ("unreachable-root", f"{CLOSED}/platform.git", "v1", FailureClass.DEPENDENCY, "connection refused"),
)


@pytest.fixture(scope="module")
def site(argo_cd: ArgoCd, origins: Sources) -> Iterator[Site]:
    """All cases applied at once: Argo CD works on them side by side."""
    for name in ("platform", "platform-roots"):
        argo_cd.project(name)
    argo_cd.project("elsewhere", destinations=[{"server": "*", "namespace": "elsewhere"}])
    argo_cd.project("namespaced", clusterResourceWhitelist=[])
    repositories = {name: origins.repository(name) for name in ("platform", "closed")}
    argo_cd.credentials("platform", repositories["platform"].url, USER, PASSWORD)
    argo_cd.credentials("closed", repositories["closed"].url, USER, "wrong")
    made = Site(argo_cd, Kube.from_file(argo_cd.plane.kubeconfig), origins.charts, repositories)
    made.commit("v1", GOOD, CHANGED, *FAILING)
    made.deliver(GOOD, CHANGED, *FAILING)
    for name, git, revision, *_ in ROOTS:
        made.deliver_root(name, made.cluster(git, revision))
    yield made
    argo_cd.clear()


def is_class(failure: FailureClass | None, said: str, found: Verdict | None) -> bool:
    return found is not None and found.failure_class is failure and said in found.reason


def test_a_good_release_passes(site: Site) -> None:
    state = site.until(lambda: site.seen(GOOD), lambda found: found is None).state
    assert isinstance(state, ReleaseState)
    assert state.application is not None
    assert state.application.synced_revisions == ("1.2.3", site.repositories["platform"].git("rev-parse", "v1"))
    assert [(entry.kind, entry.name, entry.ready) for entry in state.workloads] == [("Deployment", "good", 1)]
    said = site.argo_cd.plane.kubectl("-n", "good", "get", "configmap", "good", "-o", "jsonpath={.data.greeting}")
    assert said == "from Git"


@pytest.mark.parametrize("case", FAILING, ids=lambda case: case.name)
def test_each_failure_class_is_told_from_the_real_status(site: Site, case: Case) -> None:
    problem = site.until(lambda: site.seen(case), lambda found: is_class(case.failure, case.said, found)).problem
    assert problem is not None
    assert problem.status is case.status, problem.reason


@pytest.mark.parametrize(("name", "git", "revision", "failure", "said"), ROOTS, ids=[row[0] for row in ROOTS])
def test_a_root_tells_what_is_wrong_with_its_repository(
    site: Site, name: str, git: str, revision: str, failure: FailureClass, said: str
) -> None:
    cluster = site.cluster(git, revision)
    site.until(lambda: site.seen_root(name, cluster, NOBODY), lambda found: is_class(failure, said, found))


def test_new_values_are_waited_for_and_an_immutable_field_refuses_them(site: Site) -> None:
    site.until(lambda: site.seen(CHANGED), lambda found: found is None)
    later = replace(CHANGED, revision="v2", values={"selector": "two"})
    site.commit("v2", later)
    site.deliver(later)
    assert site.seen(later).problem is not None, "the gate took the old sync for the new values"
    site.until(lambda: site.seen(later), lambda found: is_class(FailureClass.APPLY, "field is immutable", found))
