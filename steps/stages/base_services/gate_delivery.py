"""Judges Argo CD: its version, and the settings that must be right before it deploys anything."""

from typing import Any

from steps.contract.objects.charts import Workload
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.base_services.contract import (
    REDIS,
    ArgoCdExpectation,
    ArgoCdObservation,
    ArgoCdWorkload,
    DeliveryExpectation,
    DeliveryObservation,
    Project,
    Repository,
    Trust,
)
from steps.stages.shared import gate_charts
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.gate_charts import missing_crd

ARGO_CD, DELIVERY = "base_services/argo_cd", "base_services/delivery"
_ACCESS = ("password", "sshPrivateKey", "githubAppPrivateKey", "bearerToken", "tlsClientCertKey")
"""Keys of a repository's Secret that hold credentials."""
_HOST_KEYS = ("argocd-ssh-known-hosts-cm", "host key", "configs.ssh.extraHosts")
_CERTIFICATES = ("argocd-tls-certs-cm", "certificate", "configs.tls.certificates")
"""Name of the ConfigMap with trusted certificates, word for an entry in messages, and the values of chart argo-cd that fill it."""


def argo_cd(seen: ArgoCdObservation, want: ArgoCdExpectation) -> Verdict:
    """Check that each component of Argo CD runs in the wanted version, its CRDs are served, and its release is deployed if
    bringup installs it."""
    problem = gate_charts.problem(seen.releases, want.releases) or missing_crd(seen.crds, want.crds)
    for name in want.components:
        problem = problem or _component(name, seen, want)
    if problem is not None:
        return problem.verdict(ARGO_CD)
    own = [component for component in seen.components if not _plays(component, REDIS)]
    tags = {_tag(component.workload) for component in own if any(_plays(component, name) for name in want.components)}
    return passed(ARGO_CD, f"Argo CD {', '.join(sorted(tags))} runs: {', '.join(want.components)}")


def _plays(component: ArgoCdWorkload, name: str) -> bool:
    """Return True if a workload is the component `name` of Argo CD, by the end of the workload's name or by its component label.

    A highly available redis is a StatefulSet and a proxy with `-redis-ha` in their names.
    """
    workload = component.workload.name
    return workload.endswith(f"-{name}") or component.component == name or (name == REDIS and "-redis-ha" in workload)


def _component(name: str, seen: ArgoCdObservation, want: ArgoCdExpectation) -> Finding | None:
    workloads = [component.workload for component in seen.components if _plays(component, name)]
    if not workloads:
        missing = f"no {name} of Argo CD in namespace {want.namespace}"
        step = "name the namespace of Argo CD in delivery.argo_cd.namespace, or let us install it (install: true)"
        return unknown(FailureClass.DEPENDENCY, missing, "a workload with label app.kubernetes.io/part-of=argocd", step)
    for workload in workloads:
        if not workload.settled():
            return gate_charts.judge_unsettled(workload, seen.trouble, want.namespace)
        if name != REDIS and (problem := _version(workload, want)) is not None:
            return problem
    return None


def _version(workload: Workload, want: ArgoCdExpectation) -> Finding | None:
    tag = _tag(workload)
    if not tag:
        seen = f"the image of {workload.kind} {workload.name} has no tag: {workload.image or 'none'}"
        step = "name the image by tag (and digest)"
        return unknown(FailureClass.COMPARISON, seen, f"a tag that tells its version, {want.version}", step)
    plain = tag.removeprefix("v")
    if plain == want.version or plain.startswith((f"{want.version}.", f"{want.version}-", f"{want.version}+")):
        return None
    seen, step = f"{workload.kind} {workload.name} is Argo CD {tag}", "upgrade Argo CD, or correct delivery.argo_cd.version"
    return fail(FailureClass.COMPARISON, seen, want.version, step)


def _tag(workload: Workload) -> str:
    """Return the tag of an image `HOST:PORT/NAME:TAG@DIGEST`."""
    name = workload.image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]


# ---- how it is set up ----------------------------------------------------------------------------------------------------------


def delivery(seen: DeliveryObservation, want: DeliveryExpectation) -> Verdict:
    """Check argocd-cm, AppProjects, the repository's Secret, and Argo CD's trust in the repository's server."""
    finding = (
        _config(seen, want)
        or _projects(seen.projects, want)
        or (_repository(seen.repositories, want) if want.credentials else None)
        or (_trusts(seen.host_keys, want, *_HOST_KEYS) if want.host_keys else None)
        or (_trusts(seen.certificates, want, *_CERTIFICATES) if want.certificates else None)
    )
    if finding is not None:
        return finding.verdict(DELIVERY)
    parts = [f"{count(len(want.keys), 'key')} of argocd-cm", count(len(want.projects), "AppProject")]
    parts += ["the repository's Secret"] if want.credentials else []
    parts += ["its server's host keys"] if want.host_keys else []
    parts += ["its server's certificates"] if want.certificates else []
    return passed(DELIVERY, ", ".join(parts))


def _config(seen: DeliveryObservation, want: DeliveryExpectation) -> Finding | None:
    if seen.config is None and want.keys:
        missing, step = f"no ConfigMap {want.namespace}/argocd-cm", "install Argo CD there, or correct delivery.argo_cd.namespace"
        return fail(FailureClass.DEPENDENCY, missing, "Argo CD's own settings", step)
    config = seen.config or {}
    wrong = [key for key, digest in want.keys.items() if config.get(key) != digest]
    if not wrong:
        return None
    how = "has another text" if wrong[0] in config else "is missing"
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    expected = "our text, without which sync waves do not wait and differences never end"
    step = "find who else writes argocd-cm (its Helm release?) and give the keys of bootstrap/argocd-cm.yaml to that owner"
    return fail(FailureClass.COMPARISON, f"key {wrong[0]} of argocd-cm {how}{more}", expected, step)


def _projects(seen: tuple[Project, ...], want: DeliveryExpectation) -> Finding | None:
    by_name = {project.name: project.spec for project in seen}
    rendered = "it as rendered in bootstrap/projects.yaml"
    for project in want.projects:
        spec = by_name.get(project.name)
        if spec is None:
            step = "apply this stage again: somebody removed it"
            return fail(FailureClass.APPLY, f"no AppProject {want.namespace}/{project.name}", rendered, step)
        if wrong := _differing(spec, project.spec):
            problem = f"AppProject {project.name} differs in {', '.join(wrong)}"
            expected = f"{rendered}: no right less, and none more"
            return fail(FailureClass.COMPARISON, problem, expected, "find who else writes this AppProject")
    return None


def _differing(seen: dict[str, Any], want: dict[str, Any]) -> list[str]:
    """Return the names of an AppProject's fields that differ from the plan. Lists compare as sets; absent means empty."""
    # a list that the plan leaves out must be empty: it would give more rights
    names = sorted({*want, *(name for name, value in seen.items() if isinstance(value, list))})
    return [name for name in names if not _same(seen.get(name), want.get(name))]


def _same(seen: Any, want: Any) -> bool:
    if isinstance(seen, list) or isinstance(want, list):
        return sorted(map(repr, seen or [])) == sorted(map(repr, want or []))
    return bool(seen == want)


def _trusts(seen: Trust | None, want: DeliveryExpectation, name: str, what: str, value: str) -> Finding | None:
    """Return a failure unless Argo CD trusts exactly the host keys or certificates of the site's file for the repository's server.

    A further key or certificate may be left from before a rotation. With an empty file the check fails, because nothing is proven.
    """
    required, trusted = (set(seen.given), set(seen.found)) if seen is not None else (set(), set())
    lacking, extra = required - trusted, trusted - required
    if required and not lacking and extra:
        problem = f"{want.namespace}/{name} has {count(len(extra), what)} for {want.repo} that the site's file does not give"
        expected = "what delivery.argo_cd names and no more: what was given before a rotation is still trusted"
        step = f"apply this stage again; where a chart keeps bringing them, take them out of its values {value}"
        return fail(FailureClass.COMPARISON, problem, expected, step)
    if required and not lacking:
        return None
    problem = f"{want.namespace}/{name} lacks {count(len(lacking), what)} of {len(required)}" if seen else f"no ConfigMap {name}"
    expected = "all that delivery.argo_cd names: Argo CD trusts no server that it was not told of"
    step = f"apply this stage again; where a chart keeps taking them out, give them to its values {value}"
    failure_class = FailureClass.DEPENDENCY if seen is None else FailureClass.COMPARISON
    return fail(failure_class, f"{problem} for {want.repo}", expected, step)


def _repository(seen: tuple[Repository, ...], want: DeliveryExpectation) -> Finding | None:
    mine = [repository for repository in seen if _plain(repository.url) == _plain(want.repo)]
    if any(set(repository.keys) & set(_ACCESS) for repository in mine):
        return None
    problem = f"Secret {mine[0].name} has no credentials" if mine else "no Secret of a repository has its address"
    expected, step = "a Secret that lets Argo CD into the repository", "apply this stage again: somebody changed it"
    return fail(FailureClass.PERMISSION, f"{want.repo}: {problem}", expected, step)


def _plain(url: str) -> str:
    """Return a repository's URL in the form in which Argo CD compares URLs: lower case, without trailing slash and `.git`."""
    return url.rstrip("/").removesuffix(".git").lower()
