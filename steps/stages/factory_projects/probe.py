"""Reads namespaces, quotas, limit ranges, priority classes and accounts of projects, and asks the authorizer about developers."""

from msgspec import Struct

from steps.stages.factory_projects.contract import (
    BUILDER,
    DEVELOPER,
    AccessAnswer,
    AccessObservation,
    ControlObservation,
    ProjectState,
    Question,
    questions,
)
from steps.stages.shared.kube_objects import ObjectMeta
from steps.stages.shared.kube_reader import AccessQuestion, AccessReader, KubeReader, Scope
from steps.stages.shared.probe_charts import read_argument

QUOTA, LIMITS = "project", "project"


class _Named(Struct, frozen=True):
    """Any object, of which only the name counts."""

    metadata: ObjectMeta = ObjectMeta()


class _CountedQuota(Struct, frozen=True):
    hard: dict[str, str] = {}


class _RawQuota(Struct, frozen=True):
    """A ResourceQuota as the API returns it; its status is set by the controller that counts."""

    status: _CountedQuota = _CountedQuota()


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
    """Return the state of each project, by the namespaces that the task names: whole projects would not fit into it twice."""
    names = (str(name) for name in read_argument(scope, "namespaces") or ())
    return ControlObservation(projects=tuple(_project(kube, name) for name in names))


def access(kube: AccessReader, scope: Scope) -> AccessObservation:
    """Return what the authorizer answers about the developers of each project that the task names."""
    projects: dict[str, list[str]] = dict(read_argument(scope, "projects") or {})
    users: dict[str, list[str]] = dict(read_argument(scope, "users") or {})
    return AccessObservation(answers=tuple(_ask(kube, question) for question in questions(projects, users)))


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


def _ask(kube: AccessReader, question: Question) -> AccessAnswer:
    deed = question.deed
    access_question = AccessQuestion(
        user=question.subject,
        groups=question.groups,
        namespace=question.namespace,
        verb=deed.verb,
        api_group=deed.group,
        resource=deed.resource,
        subresource=deed.subresource,
    )
    allowed = kube.may(access_question)
    return AccessAnswer(subject=question.subject, namespace=question.namespace, deed=deed.text, allowed=allowed)
