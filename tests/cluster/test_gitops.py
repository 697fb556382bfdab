"""Output of `bringup render --gitops`, delivered by the real Argo CD from a Git server; stand-ins take the names of the charts.

The steps that set Argo CD up and publish run as in a pipeline; the rest comes by the ApplicationSet, as at a site without it.
"""

import datetime
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from actors import sources
from actors.argo_cd import CONTROLLER, NAMESPACE, ArgoCd
from actors.sources import PASSWORD, USER, Repository, Sources
from actors.steps_by_hand import RUN, Steps
from kubelab import box, lab, product

from steps.clients.kube.client import Kube
from steps.clients.store import Store
from steps.contract import delivery
from steps.contract.objects.charts import Release, RootApplication, RootState
from steps.stages.shared import gate_charts as gates
from steps.stages.shared import probe_applications as probe
from steps.stages.shared import probe_charts
from workflows import catalog, examples, spec
from workflows.gitops import argo_applications
from workflows.gitops.layout import Layout, by_stage, root_name, waves
from workflows.gitops.projects import settings
from workflows.plan.compiler import compile_plan

pytestmark = pytest.mark.sampled("parts of a real cluster")

DELIVERY_SECONDS = 180.0
"""Five stages one after another, ten seconds each on two idle cores."""

TAG, NEWER = "v1", "v2"
ONE, TWO = "one", "two"
HOLD = "argocd.argoproj.io/skip-reconcile"
"""An annotation: Argo CD leaves the Application as it is."""
FOREIGN = {"timeout.reconciliation": "60s"}
"""A key of argocd-cm that somebody else set."""

OVERLAY = """\
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
metadata: {name: of-the-site}
patches:
  - target: {kind: Application, name: volcano}
    patch: |
      - {op: add, path: /spec/sources/0/helm/parameters, value: [{name: greeting, value: from the overlay}]}
"""
Object = dict[str, Any]


@dataclass(frozen=True)
class Site:
    """Two environments in one repository, of which the first is this cluster."""

    argo_cd: ArgoCd
    kube: Kube
    repository: Repository
    folder: Path
    steps: Steps

    @property
    def checkout(self) -> Path:
        """A clone of the repository, as the site's people and their CI have it."""
        return self.folder / "checkout"

    def source(self, environment: str = ONE) -> Path:
        """The spec of an environment."""
        return self.folder / f"{environment}.yaml"

    def cluster(self) -> spec.ClusterSpec:
        """The spec of this cluster, read."""
        return spec.load(self.source())

    def releases(self) -> tuple[catalog.PlannedRelease, ...]:
        """The releases of this cluster."""
        return catalog.resolve(self.cluster(), catalog.load())

    def render(self, *options: str, environment: str = ONE) -> subprocess.CompletedProcess[str]:
        """Run `bringup render --gitops`."""
        return product.bringup(self.folder, "render", str(self.source(environment)), "--gitops", str(self.checkout), *options)

    def git(self, *arguments: str) -> str:
        """Run git in the checkout."""
        self.checkout.mkdir(exist_ok=True)
        command = ["git", "-C", str(self.checkout), "-c", "user.name=ada", "-c", "user.email=ada@example.org", *arguments]
        trusting = os.environ | {"GIT_SSL_CAINFO": str(self.steps.certificate)}
        return subprocess.run(command, env=trusting, capture_output=True, text=True, check=True).stdout.strip()

    def config_map(self) -> Mapping[str, str]:
        """argocd-cm."""
        found = self.argo_cd.plane.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/argocd-cm")
        assert found is not None
        return dict(found["data"])

    def greeting(self, release: str, namespace: str) -> str:
        """Return the greeting that a stand-in got by its values."""
        found = self.argo_cd.plane.get(f"/api/v1/namespaces/{namespace}/configmaps/{release}") or {}
        return str(found.get("data", {}).get("greeting", ""))

    def problems(self) -> dict[str, str]:
        """Return the failures of the gates by stage, judged by the plan's expectations; empty if all pass."""
        delivered = delivery.decode(Store(self.folder / "run/store").read(delivery.key(RUN)) or b"{}")
        found: dict[str, str] = {}
        for task in self.steps.plan.tasks:
            if task.name not in ("control", "charts") or "root_app" not in task.expectations:
                continue
            releases = msgspec.convert(task.expectations["releases"], tuple[Release, ...])
            root = msgspec.convert(task.expectations["root_app"], RootApplication)
            state = RootState(application=probe.read(self.kube, root.home, root.name), commit=delivered.commit)
            finding = gates.problem(probe_charts.observe(self.kube, releases), releases, state, root)
            found |= {task.stage: f"{finding.failure_class}: {finding.verdict('test').reason}"} if finding else {}
        return found


def until(good: Callable[[], bool], said: Callable[[], object]) -> None:
    """Wait for a condition. Raises AssertionError with what was seen last."""
    try:
        box.until(good, CONTROLLER, DELIVERY_SECONDS)
    except box.DidNotStart as error:
        raise AssertionError(f"last seen: {said()}") from error


@pytest.fixture(scope="module")
def site(argo_cd: ArgoCd, origins: Sources, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Specs, the rendered trees in the repository with the site's own overlay, and the run folder of the first environment."""
    folder, repository = tmp_path_factory.mktemp("gitops"), origins.repository("platform")
    (folder / "password").write_text(f"{USER}:{PASSWORD}\n")
    (folder / "ca.pem").write_text(origins.certificate.read_text())
    for name, address in ((ONE, box.ADDRESS), (TWO, box.OUTSIDE)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(written(name, address, repository.url, origins.charts)))
    plan = compile_plan(spec.load(folder / f"{ONE}.yaml"))
    for release in plan.releases:
        if release.chart:
            origins.publish(lab.CHARTS / "small", release.chart, release.version)
    steps = Steps(folder / "run", plan, origins.certificate)
    made = Site(argo_cd, Kube.from_file(argo_cd.plane.kubeconfig), repository, folder, steps)
    repository.commit({"README.md": "Ours.\n"})
    address = repository.url.replace("://", f"://{USER}:{PASSWORD}@")
    made.git("clone", "--quiet", address, ".")
    for name in (ONE, TWO):
        done = made.render(environment=name)
        assert done.returncode == 0, done.stderr
    (made.checkout / Layout.of(made.cluster()).overlay / "kustomization.yaml").write_text(OVERLAY)
    made.git("add", ".")
    made.git("commit", "--quiet", "--message", "Render")
    made.git("push", "--quiet")
    secrets = {"git_credentials": f"{USER}:{PASSWORD}\n", "git_ca": origins.certificate.read_text()}
    made.steps.lay(secrets | {"kubeconfig": argo_cd.plane.kubeconfig.read_text()})
    argo_cd.distrust(box.OUTSIDE)
    patch = json.dumps({"data": FOREIGN})
    argo_cd.plane.kubectl("-n", NAMESPACE, "patch", "configmap", "argocd-cm", "--type=merge", "-p", patch)
    yield made
    argo_cd.clear()


def written(name: str, address: str, repo: str, charts_at: str, tag: str = TAG) -> Object:
    """A spec whose charts come from the Helm repository of the test, and whose stages change no hosts."""
    found: Object = yaml.safe_load(examples.path("h200-16").read_text())
    argo = {"repo": repo, "revision": tag, "project": f"platform-{name}", "version": "2.14", "install": False}
    argo |= {"credentials": {"file": "./password"}, "ca": {"file": "./ca.pem"}}
    found |= {"name": name, "delivery": {"mode": "argo_cd", "argo_cd": argo}}
    found |= {"stages": ["base_services", "gpu_operator", "network_operator", "gang", "slurm"], "approvals": []}
    found |= {"target": {"kubeconfig": {"file": "./kubeconfig"}}}
    found["rke2"]["registration_address"] = address
    named = catalog.resolve(spec.load(yaml.safe_dump(found)), catalog.load())
    return found | {"overrides": {one.id: {"repo": charts_at, "values": _values(name, tag)} for one in named if one.chart}}


def _values(environment: str, tag: str) -> Object:
    """Values of every stand-in: two workloads, because some gates ask for as many."""
    return {"greeting": greeted(environment, tag), "replicas": 1, "workloads": ["", "-too"]}


def greeted(environment: str, tag: str = TAG) -> str:
    """Return the greeting that all stand-ins of an environment get by their values."""
    return f"from {environment}" if tag == TAG else f"from {environment} at {tag}"


def another_ca(folder: Path) -> str:
    """A CA that signed nothing here."""
    sources.make_ca(folder / "another.pem")
    return (folder / "another.pem").read_text()


def test_the_steps_set_argo_cd_up_publish_and_read_it_back(site: Site) -> None:
    site.steps.secret("git_ca", another_ca(site.folder))
    done = site.steps.run("base_services.publish")
    assert (done.returncode, "delivery.argo_cd.ca" in done.stderr) == (64, True), done.stderr
    site.steps.secret("git_ca", site.steps.certificate.read_text())
    for task in ("run.open", "base_services.delivery_settings", "base_services.publish", "base_services.delivery"):
        done = site.steps.run(task)
        assert done.returncode == 0, f"{task}: {done.stderr}"
    trusted = site.argo_cd.plane.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/argocd-tls-certs-cm") or {}
    assert trusted["data"][box.OUTSIDE] == site.steps.certificate.read_text()
    keys = settings(site.releases())
    assert site.config_map() == FOREIGN | keys
    assert site.repository.git("rev-parse", TAG) == site.git("rev-parse", "HEAD"), "the branch had the tree already"
    assert site.repository.read(f"{Layout.of(site.cluster()).overlay}/kustomization.yaml", TAG) == OVERLAY.strip()


def test_a_stage_starts_by_its_root_alone(site: Site) -> None:
    """And fails by what Argo CD depends on until it trusts the repository's server."""
    done = site.steps.run("base_services.apply")
    assert done.returncode == 0, done.stderr
    until(lambda: "x509: certificate signed by unknown authority" in site.problems().get("base_services", ""), site.problems)
    assert site.problems()["base_services"].startswith("dependency: ")
    site.argo_cd.mount()
    until(lambda: "base_services" not in site.problems(), site.problems)
    stage = by_stage(site.releases())["base_services"]
    assert {one["metadata"]["name"] for one in site.argo_cd.applications()} == {
        root_name("base_services"),
        *(one.release_name for one in stage),
    }


def test_the_application_set_makes_one_application_an_environment_and_all_stages_come(site: Site) -> None:
    for name, address in ((ONE, box.ADDRESS), (TWO, box.OUTSIDE)):
        site.argo_cd.register(name, f"https://{address}:6443")
    site.argo_cd.plane.kubectl("apply", "--server-side", "-f", str(site.checkout / Layout.of(site.cluster()).common[1]))
    until(lambda: not site.problems(), site.problems)
    found = {one["metadata"]["name"]: one for one in site.argo_cd.applications()}
    sets = {
        name: (found[name]["spec"]["source"]["path"], found[name]["spec"]["destination"]["server"])
        for name in (f"environment-{ONE}", f"environment-{TWO}")
    }
    assert sets == {
        f"environment-{ONE}": (f"apps/environments/{ONE}/roots", f"https://{box.ADDRESS}:6443"),
        f"environment-{TWO}": (f"apps/environments/{TWO}/roots", f"https://{box.OUTSIDE}:6443"),
    }
    commit = site.repository.git("rev-parse", TAG)
    until(lambda: state(site, f"environment-{ONE}") == ("Synced", "Healthy", commit), lambda: state(site, f"environment-{ONE}"))


def test_no_application_is_made_before_the_wave_before_it_is_healthy(site: Site) -> None:
    found = {one["metadata"]["name"]: one for one in site.argo_cd.applications()}
    assert order(site, found) == []


def state(site: Site, name: str) -> tuple[str, str, str]:
    """Return sync status, health and revision of an Application."""
    found = (site.argo_cd.application(name) or {}).get("status", {})
    sync = found.get("sync", {})
    return sync.get("status", ""), found.get("health", {}).get("status", ""), sync.get("revision", "")


def order(site: Site, found: Mapping[str, Object]) -> list[str]:
    """Every Application that was made before one of an earlier wave was healthy; stages follow each other, and releases in them."""
    early, ready = [], datetime.datetime.min.replace(tzinfo=datetime.UTC)
    for stage, releases in by_stage(site.releases()).items():
        place = waves(releases)
        groups = [[one.release_name for one in releases if place[one.id] == wave] for wave in sorted(set(place.values()))]
        groups[0].append(root_name(stage))
        for names in groups:
            early += [name for name in names if when(found[name]["metadata"]["creationTimestamp"]) < ready]
            ready = max(when(found[name]["status"]["health"]["lastTransitionTime"]) for name in names if name != root_name(stage))
    return early


def when(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def test_values_come_from_the_environment_and_the_overlay_goes_over_them(site: Site) -> None:
    spaces = {one.release_name: one.namespace for one in site.releases() if one.chart}
    said = {name: site.greeting(name, space) for name, space in spaces.items()}
    assert said == dict.fromkeys(spaces, greeted(ONE)) | {"volcano": "from the overlay"}


def test_what_is_changed_by_hand_is_put_back(site: Site) -> None:
    patch = json.dumps({"data": {"greeting": "by hand"}})
    site.argo_cd.plane.kubectl("-n", "cert-manager", "patch", "configmap", "cert-manager", "-p", patch)
    until(lambda: site.greeting("cert-manager", "cert-manager") == greeted(ONE), lambda: state(site, "cert-manager"))


def test_ci_sees_a_file_that_is_not_what_the_spec_renders(site: Site) -> None:
    assert site.render("--check").returncode == 0
    changed = f"{Layout.of(site.cluster()).home}/values/cert-manager.yaml"
    (site.checkout / changed).write_text("greeting: by hand\n")
    done = site.render("--check")
    assert (done.returncode, changed in done.stdout) == (65, True), done.stdout


def test_an_upgrade_goes_through_the_waves_in_order(site: Site, origins: Sources) -> None:
    """The first wave is kept from being looked at: its health speaks of the revision before, and starts no later wave."""
    publish_newer(site, origins)
    stage = {one.release_name: one.namespace for one in by_stage(site.releases())["slurm"]}
    (first, *later), kubectl = stage, site.argo_cd.plane.kubectl
    kubectl("-n", NAMESPACE, "annotate", "application", first, f"{HOLD}=true")
    site.argo_cd.apply(argo_applications.root_application(site.cluster(), "slurm"))
    until(lambda: f"Application/{first}" in operation(site, root_name("slurm")), lambda: operation(site, root_name("slurm")))
    assert [revision(site, name) for name in stage] == [NEWER, *[TAG] * len(later)]
    kubectl("-n", NAMESPACE, "annotate", "application", first, f"{HOLD}-")
    until(
        lambda: {site.greeting(name, space) for name, space in stage.items()} == {greeted(ONE, NEWER)},
        lambda: operation(site, root_name("slurm")),
    )
    assert [revision(site, name) for name in stage] == [NEWER] * len(stage)


def publish_newer(site: Site, origins: Sources) -> None:
    """New values under a new tag. Nothing but the pipeline moves roots from here on."""
    over = [f"environment-{name}" for name in (ONE, TWO)]
    site.argo_cd.plane.kubectl("-n", NAMESPACE, "delete", "applicationset", "bringup", "--cascade=orphan")
    site.argo_cd.plane.kubectl("-n", NAMESPACE, "delete", "application", *over)
    newer = written(ONE, box.ADDRESS, site.repository.url, origins.charts, NEWER)
    site.source().write_text(yaml.safe_dump(newer))
    assert site.render().returncode == 0
    site.git("commit", "--quiet", "--all", "--message", NEWER)
    site.git("tag", NEWER)
    site.git("push", "--quiet", "origin", "HEAD", NEWER)


def operation(site: Site, name: str) -> str:
    """Return phase and message of the sync that Argo CD is running for an Application; an empty text if there is none."""
    found = (site.argo_cd.application(name) or {}).get("status", {}).get("operationState", {})
    return f"{found.get('phase')}: {found.get('message')}" if found.get("phase") == "Running" else ""


def revision(site: Site, name: str) -> str:
    """The revision of the values that an Application points to."""
    found = site.argo_cd.application(name) or {}
    return str(found["spec"]["sources"][-1]["targetRevision"])
