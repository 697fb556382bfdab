"""Judges Argo CD itself: its version, and the settings that it needs before it delivers anything."""

from collections.abc import Iterable
from typing import Any

from steps.contract.charts import Trouble, Workload
from steps.contract.plain import count
from steps.contract.verdict import FailureClass, Verdict, failed, inconclusive, passed
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
from steps.stages.shared.gate_charts import missing_crd

ARGO_CD, DELIVERY = "base_services/argo_cd", "base_services/delivery"
_ACCESS = ("password", "sshPrivateKey", "githubAppPrivateKey", "bearerToken", "tlsClientCertKey")
"""Keys of a repository's Secret that hold credentials."""
_HOST_KEYS = ("argocd-ssh-known-hosts-cm", "host key", "configs.ssh.extraHosts")
_CERTIFICATES = ("argocd-tls-certs-cm", "certificate", "configs.tls.certificates")
"""ConfigMap, its content in words, and the values of chart argo-cd that fill it."""


def argo_cd(seen: ArgoCdObservation, want: ArgoCdExpectation) -> Verdict:
    """Check that every component is settled and of the wanted version, its kinds are served, and our release of it is deployed."""
    problem = gate_charts.problem(ARGO_CD, seen.releases, want.releases) or missing_crd(ARGO_CD, seen.crds, want.crds)
    for name in want.components:
        problem = problem or _component(
            name, [component for component in seen.components if _plays(component, name)], seen.trouble, want
        )
    if problem is not None:
        return problem
    tags = sorted(
        {
            _tag(component.workload)
            for component in seen.components
            if not _is_redis(component) and _plays_any(component, want.components)
        }
    )
    return passed(ARGO_CD, f"Argo CD {', '.join(tags)} runs: {', '.join(want.components)}")


def _plays(component: ArgoCdWorkload, name: str) -> bool:
    """Return True if the workload is this component, by the end of its name or by its label.

    A highly available redis is a StatefulSet and a proxy with `-redis-ha` in their names.
    """
    workload = component.workload.name
    return workload.endswith(f"-{name}") or component.component == name or (name == REDIS and "-redis-ha" in workload)


def _plays_any(component: ArgoCdWorkload, names: Iterable[str]) -> bool:
    return any(_plays(component, name) for name in names)


def _is_redis(component: ArgoCdWorkload) -> bool:
    return _plays(component, REDIS)


def _component(name: str, found: list[ArgoCdWorkload], trouble: Iterable[Trouble], want: ArgoCdExpectation) -> Verdict | None:
    if not found:
        return inconclusive(
            ARGO_CD,
            seen=f"no {name} of Argo CD in namespace {want.namespace}",
            expected="a workload with label app.kubernetes.io/part-of=argocd",
            next_step="name the namespace of Argo CD in delivery.argo_cd.namespace, or let us install it (install: true)",
            failure_class=FailureClass.DEPENDENCY,
        )
    for component in found:
        if not component.workload.settled():
            return gate_charts.judge_unsettled(ARGO_CD, component.workload, trouble, want.namespace)
        if name != REDIS and (problem := _version(component.workload, want)) is not None:
            return problem
    return None


def _version(workload: Workload, want: ArgoCdExpectation) -> Verdict | None:
    tag = _tag(workload)
    if not tag:
        return inconclusive(
            ARGO_CD,
            seen=f"the image of {workload.kind} {workload.name} has no tag: {workload.image or 'none'}",
            expected=f"a tag that tells its version, {want.version}",
            next_step="name the image by tag (and digest)",
            failure_class=FailureClass.COMPARISON,
        )
    plain = tag.removeprefix("v")
    if plain == want.version or plain.startswith((f"{want.version}.", f"{want.version}-", f"{want.version}+")):
        return None
    return failed(
        ARGO_CD,
        FailureClass.COMPARISON,
        seen=f"{workload.kind} {workload.name} is Argo CD {tag}",
        expected=want.version,
        next_step="upgrade Argo CD, or correct delivery.argo_cd.version",
    )


def _tag(workload: Workload) -> str:
    """Return the tag of an image `HOST:PORT/NAME:TAG@DIGEST`."""
    name = workload.image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]


# ---- how it is set up ----------------------------------------------------------------------------------------------------------


def delivery(seen: DeliveryObservation, want: DeliveryExpectation) -> Verdict:
    """Check argocd-cm, AppProjects, the repository's Secret, and Argo CD's trust in the repository's server."""
    summary = f"{count(len(want.keys), 'key')} of argocd-cm, {count(len(want.projects), 'AppProject')}"
    return (
        _config(seen, want)
        or _projects(seen.projects, want)
        or (_repository(seen.repositories, want) if want.credentials else None)
        or (_trusts(seen.host_keys, want, *_HOST_KEYS) if want.host_keys else None)
        or (_trusts(seen.certificates, want, *_CERTIFICATES) if want.certificates else None)
        or passed(
            DELIVERY,
            summary
            + (", the repository's Secret" if want.credentials else "")
            + (", its server's host keys" if want.host_keys else "")
            + (", its server's certificates" if want.certificates else ""),
        )
    )


def _config(seen: DeliveryObservation, want: DeliveryExpectation) -> Verdict | None:
    if seen.config is None and want.keys:
        return failed(
            DELIVERY,
            FailureClass.DEPENDENCY,
            seen=f"no ConfigMap {want.namespace}/argocd-cm",
            expected="Argo CD's own settings",
            next_step="install Argo CD there, or correct delivery.argo_cd.namespace",
        )
    config = seen.config or {}
    wrong = [key for key, digest in want.keys.items() if config.get(key) != digest]
    if not wrong:
        return None
    how = "has another text" if wrong[0] in config else "is missing"
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return failed(
        DELIVERY,
        FailureClass.COMPARISON,
        seen=f"key {wrong[0]} of argocd-cm {how}{more}",
        expected="our text, without which sync waves do not wait and differences never end",
        next_step="find who else writes argocd-cm (its Helm release?) and give the keys of bootstrap/argocd-cm.yaml to that owner",
    )


def _projects(seen: tuple[Project, ...], want: DeliveryExpectation) -> Verdict | None:
    by_name = {project.name: project.spec for project in seen}
    for project in want.projects:
        spec = by_name.get(project.name)
        if spec is None:
            return failed(
                DELIVERY,
                FailureClass.APPLY,
                seen=f"no AppProject {want.namespace}/{project.name}",
                expected="it as rendered in bootstrap/projects.yaml",
                next_step="apply this stage again: somebody removed it",
            )
        if wrong := _differing(spec, project.spec):
            return failed(
                DELIVERY,
                FailureClass.COMPARISON,
                seen=f"AppProject {project.name} differs in {', '.join(wrong)}",
                expected="it as rendered in bootstrap/projects.yaml: no right less, and none more",
                next_step="find who else writes this AppProject",
            )
    return None


def _differing(seen: dict[str, Any], want: dict[str, Any]) -> list[str]:
    """Return the fields that differ. Lists are compared as sets, and an absent list is an empty one."""
    # a list that the plan leaves out must be empty: it would give more rights
    names = sorted({*want, *(name for name, value in seen.items() if isinstance(value, list))})
    return [name for name in names if not _same(seen.get(name), want.get(name))]


def _same(seen: Any, want: Any) -> bool:
    if isinstance(seen, list) or isinstance(want, list):
        return sorted(map(repr, seen or [])) == sorted(map(repr, want or []))
    return bool(seen == want)


def _trusts(seen: Trust | None, want: DeliveryExpectation, name: str, what: str, value: str) -> Verdict | None:
    """Return a verdict unless Argo CD trusts every host key or certificate of the site's file, and no other for this server.

    Another one may be left from before a rotation. An empty file proves nothing.
    """
    required, trusted = (set(seen.given), set(seen.found)) if seen is not None else (set(), set())
    lacking, extra = required - trusted, trusted - required
    # a key from before a rotation would still be trusted
    if required and not lacking and extra:
        return _trusts_more(len(extra), want, name, what, value)
    if required and not lacking:
        return None
    problem = f"{want.namespace}/{name} lacks {count(len(lacking), what)} of {len(required)}" if seen else f"no ConfigMap {name}"
    return failed(
        DELIVERY,
        FailureClass.DEPENDENCY if seen is None else FailureClass.COMPARISON,
        seen=f"{problem} for {want.repo}",
        expected="all that delivery.argo_cd names: Argo CD trusts no server that it was not told of",
        next_step=f"apply this stage again; where a chart keeps taking them out, give them to its values {value}",
    )


def _trusts_more(extra: int, want: DeliveryExpectation, name: str, what: str, value: str) -> Verdict:
    return failed(
        DELIVERY,
        FailureClass.COMPARISON,
        seen=f"{want.namespace}/{name} has {count(extra, what)} for {want.repo} that the site's file does not give",
        expected="what delivery.argo_cd names and no more: what was given before a rotation is still trusted",
        next_step=f"apply this stage again; where a chart keeps bringing them, take them out of its values {value}",
    )


def _repository(seen: tuple[Repository, ...], want: DeliveryExpectation) -> Verdict | None:
    mine = [repository for repository in seen if _plain(repository.url) == _plain(want.repo)]
    if any(set(repository.keys) & set(_ACCESS) for repository in mine):
        return None
    problem = f"Secret {mine[0].name} has no credentials" if mine else "no Secret of a repository has its address"
    return failed(
        DELIVERY,
        FailureClass.PERMISSION,
        seen=f"{want.repo}: {problem}",
        expected="a Secret that lets Argo CD into the repository",
        next_step="apply this stage again: somebody changed it",
    )


def _plain(url: str) -> str:
    """Return an address in the form in which Argo CD compares addresses."""
    return url.rstrip("/").removesuffix(".git").lower()
