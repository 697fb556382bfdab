"""Reads namespaces, quotas, limit ranges, priority classes and accounts of projects, and asks the authorizer about developers."""

from collections.abc import Iterator

from msgspec import Struct

from steps.stages.factory_projects.contract import (
    ALLOWED,
    BUILDER,
    DEVELOPER,
    OUTSIDE,
    REFUSED,
    AccessAnswer,
    AccessObservation,
    ControlObservation,
    Deed,
    ProjectState,
)
from steps.stages.shared.kube_reader import Access, AccessReader, KubeReader, Scope
from steps.stages.shared.probe_charts import read_argument
from steps.stages.shared.probe_workloads import ObjectMeta

QUOTA, LIMITS = "project", "project"
SYSTEM = "kube-system"
_SERVICE_ACCOUNTS = "system:serviceaccounts"


class _Named(Struct, frozen=True):
    """Any object, of which only the name counts."""

    metadata: ObjectMeta = ObjectMeta()


class _QuotaStatus(Struct, frozen=True):
    hard: dict[str, str] = {}


class _RawQuota(Struct, frozen=True):
    """A ResourceQuota as the API returns it; its status is set by the controller that counts."""

    status: _QuotaStatus = _QuotaStatus()


class _LimitItem(Struct, frozen=True, rename="camel"):
    type: str = ""
    default_request: dict[str, str] = {}


class _LimitSpec(Struct, frozen=True):
    limits: tuple[_LimitItem, ...] = ()


class _RawLimits(Struct, frozen=True):
    """A LimitRange as the API returns it."""

    spec: _LimitSpec = _LimitSpec()


class _RawPriority(Struct, frozen=True):
    """A PriorityClass as the API returns it."""

    value: int | None = None


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return the state of each project that the task names."""
    names = (str(project["name"]) for project in read_argument(scope, "projects"))
    return ControlObservation(projects=tuple(_project(kube, name) for name in names))


def access(kube: AccessReader, scope: Scope) -> AccessObservation:
    """Return what the authorizer answers about the developers of each project that the task names."""
    projects: dict[str, list[str]] = dict(read_argument(scope, "projects") or {})
    names = sorted(projects)
    return AccessObservation(answers=tuple(answer for name in names for answer in _answers(kube, name, projects[name], names)))


def _project(kube: KubeReader, name: str) -> ProjectState:
    space = f"/api/v1/namespaces/{name}"
    quota = kube.get(f"{space}/resourcequotas/{QUOTA}", _RawQuota)
    limits = kube.get(f"{space}/limitranges/{LIMITS}", _RawLimits)
    priority = kube.get(f"/apis/scheduling.k8s.io/v1/priorityclasses/project-{name}", _RawPriority)
    items = limits.spec.limits if limits else ()
    accounts = {account.metadata.name for account in kube.list(f"{space}/serviceaccounts", _Named) or ()}
    return ProjectState(
        name=name,
        exists=kube.get(space, _Named) is not None,
        hard=quota.status.hard if quota else {},
        requests=next((item.default_request for item in items if item.type == "Container"), {}),
        priority=priority.value if priority else None,
        accounts=tuple(sorted(accounts & {BUILDER, DEVELOPER})),
    )


def _answers(kube: AccessReader, project: str, groups: list[str], projects: list[str]) -> Iterator[AccessAnswer]:
    other = next((name for name in projects if name != project), "default")
    account = f"system:serviceaccount:{project}:{DEVELOPER}"
    # a token of an account is in these groups: https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/
    own = (_SERVICE_ACCOUNTS, f"{_SERVICE_ACCOUNTS}:{project}", "system:authenticated")
    subjects = [(account, own), *((f"member of {group}", (group, "system:authenticated")) for group in groups)]
    for subject, members in subjects:
        for deed in (*ALLOWED, *REFUSED):
            yield _ask(kube, subject, members, project, deed)
        for namespace in (other, SYSTEM):
            for deed in OUTSIDE:
                yield _ask(kube, subject, members, namespace, deed)


def _ask(kube: AccessReader, subject: str, groups: tuple[str, ...], namespace: str, deed: Deed) -> AccessAnswer:
    question = Access(
        user=subject,
        groups=groups,
        namespace=namespace,
        verb=deed.verb,
        api_group=deed.group,
        resource=deed.resource,
        subresource=deed.subresource,
    )
    return AccessAnswer(subject=subject, namespace=namespace, deed=deed.text, allowed=kube.may(question))
