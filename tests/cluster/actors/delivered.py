"""Releases as the product delivers them by Argo CD, from the repositories of a test, and what its probe and gate say of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import yaml
from actors.argo_cd import CONTROLLER, NAMESPACE, ArgoCd
from actors.sources import Repository
from kubelab import box

from steps.clients.kube.client import Kube
from steps.contract.objects.charts import Owner, Release, ReleaseState, RootApplication, RootState
from steps.contract.verdict import FailureClass, Status, Verdict
from steps.stages.shared import gate_charts as gates
from steps.stages.shared import probe_applications as probe
from steps.stages.shared import probe_charts
from workflows import catalog, examples, spec
from workflows.gitops import argo_applications
from workflows.gitops.layout import Layout

SYNC_SECONDS = 90.0
"""A sync takes about five on two idle cores; Argo CD looks at its sources every ten."""

STAGE = "gpu_operator"
NOBODY = "0" * 40
"""A commit that no repository has."""

Good = Callable[[Verdict | None], bool]


@dataclass(frozen=True)
class Case:
    """One release: a chart with values, the AppProject that must allow it, the tag and the Git repository of its values.

    `charts` is another Helm repository than the good one. What must be found of it: class, status, words of the reason.
    """

    name: str
    chart: str = "small"
    version: str = "1.2.3"
    values: Mapping[str, Any] = field(default_factory=dict)
    project: str = "platform"
    git: str = "platform"
    charts: str = ""
    revision: str = "v1"
    failure: FailureClass | None = None
    said: str = ""
    status: Status = Status.FAIL


@dataclass(frozen=True)
class Seen:
    """Observation of a release or a root by the product's probe, and the gate's verdict if something is wrong."""

    state: ReleaseState | RootState
    problem: Verdict | None


@dataclass(frozen=True)
class Site:
    """A site that delivers by Argo CD: its Helm repository and its Git repositories by name."""

    argo_cd: ArgoCd
    kube: Kube
    charts: str
    repositories: Mapping[str, Repository]

    def cluster(self, git: str = "platform", revision: str = "v1", project: str = "platform") -> spec.ClusterSpec:
        """A whole spec of this site."""
        repo = self.repositories[git].url if git in self.repositories else git
        argo = {"repo": repo, "revision": revision, "project": project, "namespace": NAMESPACE, "version": "2.14", "install": False}
        written = yaml.safe_load(examples.path("h200-16").read_text()) | {"delivery": {"mode": "argo_cd", "argo_cd": argo}}
        return spec.load(yaml.safe_dump(written))

    def commit(self, tag: str, *cases: Case) -> None:
        """Write the values of cases where their Applications look for them, and tag that."""
        for name, repository in self.repositories.items():
            chosen = [case for case in cases if case.git == name]
            files = {Layout.of(self.cluster()).values(self._release(case)): yaml.safe_dump(dict(case.values)) for case in chosen}
            repository.commit(files or {"README.md": "empty"}, tag=tag)

    def deliver(self, *cases: Case) -> None:
        """Apply the Applications that we render for cases."""
        made = (
            argo_applications.release_application(self.cluster(case.git, case.revision, case.project), self._release(case))
            for case in cases
        )
        self.argo_cd.apply(*made)

    def deliver_root(self, name: str, cluster: spec.ClusterSpec) -> None:
        """Apply the root of a stage under a name of its own."""
        made = argo_applications.root_application(cluster, STAGE)
        self.argo_cd.apply(made | {"metadata": made["metadata"] | {"name": name}})

    def seen(self, case: Case) -> Seen:
        """Observe a release with the product's probe and judge it with its gate."""
        release = Release(
            name=case.name,
            namespace=case.name,
            version=case.version,
            revision=case.revision,
            owner=Owner.ARGO_CD,
            home=NAMESPACE,
        )
        (state,) = probe_charts.observe(self.kube, [release])
        finding = gates.problem([state], [release])
        return Seen(state, finding.verdict("test") if finding else None)

    def seen_root(self, name: str, cluster: spec.ClusterSpec, commit: str) -> Seen:
        """Observe a root without releases with the product's probe and judge it with its gate."""
        argo = cluster.delivery.argo_cd
        assert argo is not None
        path = Layout.of(cluster).stage(STAGE)
        want = RootApplication(name=name, home=NAMESPACE, repo=argo.repo, path=path, revision=argo.revision)
        state = RootState(application=probe.read(self.kube, NAMESPACE, name), commit=commit)
        finding = gates.problem((), (), state, want)
        return Seen(state, finding.verdict("test") if finding else None)

    def until(self, look: Callable[[], Seen], good: Good) -> Seen:
        """Look until it is as wanted. Raises AssertionError with what was seen last."""
        found: list[Seen] = []

        def now() -> bool:
            found[:] = [look()]
            return good(found[0].problem)

        try:
            box.until(now, CONTROLLER, SYNC_SECONDS)
        except box.DidNotStart as error:
            raise AssertionError(f"last seen: {found}") from error
        return found[0]

    def _release(self, case: Case) -> catalog.PlannedRelease:
        return replace(
            _planned(),
            chart=case.chart,
            repo=case.charts or self.charts,
            version=case.version,
            namespace=case.name,
            release_name=case.name,
            values=case.values,
            ignore_differences=(),
        )


@cache
def _planned() -> catalog.PlannedRelease:
    """A release of the catalog, for all that a test leaves as it is."""
    cluster = spec.load(examples.path("h200-16"))
    return next(one for one in catalog.resolve(cluster, catalog.load()) if one.id == STAGE)
