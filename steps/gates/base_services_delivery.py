"""Whether Argo CD runs in the wanted version, and is set up as it must be before anything is delivered by it."""

from collections.abc import Iterable
from typing import Any

from steps.contract.charts import Trouble, Workload
from steps.contract.plural import count
from steps.contract.stages.base_services import (
    REDIS,
    ArgoCdExpectation,
    ArgoCdObservation,
    Component,
    DeliveryExpectation,
    DeliveryObservation,
    Project,
    Repository,
    Trust,
)
from steps.contract.verdict import FailureClass, Verdict, failed, inconclusive, passed
from steps.gates import charts
from steps.gates.crds import missing_crd

ARGO_CD, DELIVERY = "base_services/argo_cd", "base_services/delivery"
_ACCESS = ("password", "sshPrivateKey", "githubAppPrivateKey", "bearerToken", "tlsClientCertKey")
"""Keys of a repository's Secret that let Argo CD in."""
_HOST_KEYS = ("argocd-ssh-known-hosts-cm", "host key", "configs.ssh.extraHosts")
_CERTIFICATES = ("argocd-tls-certs-cm", "certificate", "configs.tls.certificates")
"""ConfigMap, what it holds, and where the chart argo-cd takes them."""


def argo_cd(seen: ArgoCdObservation, want: ArgoCdExpectation) -> Verdict:
    """Every component settled and of the wanted version, its kinds served, its release deployed where we install it."""
    found = charts.problem(ARGO_CD, seen.releases, want.releases) or missing_crd(ARGO_CD, seen.crds, want.crds)
    for name in want.components:
        found = found or _component(name, [one for one in seen.components if _plays(one, name)], seen.trouble, want)
    if found is not None:
        return found
    tags = sorted({_tag(one.workload) for one in seen.components if not _is_redis(one) and _plays_any(one, want.components)})
    return passed(ARGO_CD, f"Argo CD {', '.join(tags)} runs: {', '.join(want.components)}")


def _plays(one: Component, name: str) -> bool:
    """By the end of its name, or by its label; an HA redis is a StatefulSet and a proxy with `-redis-ha` in their names."""
    workload = one.workload.name
    return workload.endswith(f"-{name}") or one.component == name or (name == REDIS and "-redis-ha" in workload)


def _plays_any(one: Component, names: Iterable[str]) -> bool:
    return any(_plays(one, name) for name in names)


def _is_redis(one: Component) -> bool:
    return _plays(one, REDIS)


def _component(name: str, found: list[Component], trouble: Iterable[Trouble], want: ArgoCdExpectation) -> Verdict | None:
    if not found:
        return inconclusive(
            ARGO_CD,
            seen=f"no {name} of Argo CD in namespace {want.namespace}",
            expected="a workload with label app.kubernetes.io/part-of=argocd",
            next_step="name the namespace of Argo CD in delivery.argo_cd.namespace, or let us install it (install: true)",
            failure_class=FailureClass.DEPENDENCY,
        )
    for one in found:
        if not one.workload.settled():
            return charts.unsettled(ARGO_CD, one.workload, trouble, want.namespace)
        if name != REDIS and (problem := _version(one.workload, want)) is not None:
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
    """The tag of an image `HOST:PORT/NAME:TAG@DIGEST`."""
    name = workload.image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]


# ---- how it is set up ----------------------------------------------------------------------------------------------------------


def delivery(seen: DeliveryObservation, want: DeliveryExpectation) -> Verdict:
    """argocd-cm has our keys with our texts, the AppProjects are as wanted, a Secret lets Argo CD into the repository, and Argo CD
    trusts the repository's server."""
    said = f"{count(len(want.keys), 'key')} of argocd-cm, {count(len(want.projects), 'AppProject')}"
    return (
        _config(seen, want)
        or _projects(seen.projects, want)
        or (_repository(seen.repositories, want) if want.credentials else None)
        or (_trusts(seen.host_keys, want, *_HOST_KEYS) if want.host_keys else None)
        or (_trusts(seen.certificates, want, *_CERTIFICATES) if want.certificates else None)
        or passed(
            DELIVERY,
            said
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
    """Fields that differ; lists are sets, and a list that is not there is an empty one."""
    names = sorted({*want, *(name for name, value in seen.items() if isinstance(value, list))})
    return [name for name in names if not _same(seen.get(name), want.get(name))]


def _same(seen: Any, want: Any) -> bool:
    if isinstance(seen, list) or isinstance(want, list):
        return sorted(map(repr, seen or [])) == sorted(map(repr, want or []))
    return bool(seen == want)


def _trusts(seen: Trust | None, want: DeliveryExpectation, name: str, what: str, value: str) -> Verdict | None:
    """Whether Argo CD has every host key or certificate that the site's file gives, and for this server no other, such as one that
    was given before; an empty file proves nothing."""
    given, found = (set(seen.given), set(seen.found)) if seen is not None else (set(), set())
    lacking, extra = given - found, found - given
    if given and not lacking and extra:
        return _trusts_more(len(extra), want, name, what, value)
    if given and not lacking:
        return None
    said = f"{want.namespace}/{name} lacks {count(len(lacking), what)} of {len(given)}" if seen else f"no ConfigMap {name}"
    return failed(
        DELIVERY,
        FailureClass.DEPENDENCY if seen is None else FailureClass.COMPARISON,
        seen=f"{said} for {want.repo}",
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
    mine = [one for one in seen if _plain(one.url) == _plain(want.repo)]
    if any(set(one.keys) & set(_ACCESS) for one in mine):
        return None
    had = f"Secret {mine[0].name} has no credentials" if mine else "no Secret of a repository has its address"
    return failed(
        DELIVERY,
        FailureClass.PERMISSION,
        seen=f"{want.repo}: {had}",
        expected="a Secret that lets Argo CD into the repository",
        next_step="apply this stage again: somebody changed it",
    )


def _plain(url: str) -> str:
    """As Argo CD compares addresses."""
    return url.rstrip("/").removesuffix(".git").lower()
