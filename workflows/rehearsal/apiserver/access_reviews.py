"""Answers to SubjectAccessReviews from the Roles and bindings that the emulated server stores, as RBAC decides them.

Aggregated ClusterRoles have the rules that are written in them, because no controller fills them in here. Source:
https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.object_store import ObjectStore

PATH = ["apis", "authorization.k8s.io", "v1", "subjectaccessreviews"]
GROUP = "rbac.authorization.k8s.io"
ADMINS = "system:masters"
"""Group whose members the API server lets do everything, whatever the Roles say."""


class _Attributes(Struct, frozen=True):
    """The request that a review asks about."""

    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _ReviewSpec(Struct, frozen=True, rename="camel"):
    user: str = ""
    groups: tuple[str, ...] = ()
    resource_attributes: _Attributes | None = None


class _Review(Struct, frozen=True):
    """A SubjectAccessReview as a client sends it."""

    spec: _ReviewSpec = _ReviewSpec()


class _Subject(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _RoleRef(Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _Binding(Struct, frozen=True, rename="camel"):
    """A RoleBinding or ClusterRoleBinding."""

    role_ref: _RoleRef = _RoleRef()
    subjects: tuple[_Subject, ...] | None = None


class _PolicyRule(Struct, frozen=True, rename="camel"):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


class _Rules(Struct, frozen=True):
    """A Role or ClusterRole."""

    rules: tuple[_PolicyRule, ...] | None = None


def answer(store: ObjectStore, body: dict[str, Any]) -> dict[str, Any]:
    """Return a SubjectAccessReview with its answer. Raises StatusError (400) if it asks about no resource."""
    try:
        spec = msgspec.convert(body, _Review).spec
    except msgspec.ValidationError as error:
        raise errors.bad_request(f"SubjectAccessReview in version v1 cannot be handled: {error}") from error
    if spec.resource_attributes is None or not (spec.user or spec.groups):
        raise errors.bad_request("a review needs a user or groups, and resourceAttributes")
    allowed = ADMINS in spec.groups or any(_grants(rule, spec.resource_attributes) for rule in _rules(store, spec))
    return body | {"status": {"allowed": allowed} | ({} if allowed else {"reason": ""})}


def _rules(store: ObjectStore, spec: _ReviewSpec) -> Iterator[_PolicyRule]:
    """Yield the rules that bindings give to the subject: cluster-wide, and in the namespace of the request."""
    assert spec.resource_attributes is not None
    namespace = spec.resource_attributes.namespace
    for entry in store.table((GROUP, "clusterrolebindings")).slice():
        binding = msgspec.convert(entry.decode(), _Binding)
        if _binds(binding, spec, ""):
            yield from _of_role(store, binding.role_ref, "")
    for entry in store.table((GROUP, "rolebindings")).slice(namespace) if namespace else ():
        binding = msgspec.convert(entry.decode(), _Binding)
        if _binds(binding, spec, namespace):
            yield from _of_role(store, binding.role_ref, namespace)


def _binds(binding: _Binding, spec: _ReviewSpec, namespace: str) -> bool:
    for subject in binding.subjects or ():
        if subject.kind == "ServiceAccount":
            matches = spec.user == f"system:serviceaccount:{subject.namespace or namespace}:{subject.name}"
        else:
            matches = subject.name == spec.user if subject.kind == "User" else subject.name in spec.groups
        if matches:
            return True
    return False


def _of_role(store: ObjectStore, ref: _RoleRef, namespace: str) -> tuple[_PolicyRule, ...]:
    plural, where = ("clusterroles", "") if ref.kind == "ClusterRole" else ("roles", namespace)
    entry = store.table((GROUP, plural)).get(where, ref.name)
    return (msgspec.convert(entry.decode(), _Rules).rules or ()) if entry is not None else ()


def _grants(rule: _PolicyRule, wanted: _Attributes) -> bool:
    resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
    return (
        bool({"*", wanted.verb} & set(rule.verbs))
        and bool({"*", wanted.group} & set(rule.api_groups))
        and bool({"*", resource, f"*/{wanted.subresource}" if wanted.subresource else resource} & set(rule.resources))
        and (not rule.resource_names or wanted.name in rule.resource_names)
    )
