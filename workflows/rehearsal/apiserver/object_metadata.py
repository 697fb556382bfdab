"""Object metadata: names, labels and the fields that only the server sets (apimachinery `api/validation`)."""

import datetime
import functools
import re
import secrets
import time
import uuid
from typing import Any

from workflows.rehearsal.apiserver.served_resources import ServedResource

ObjectMeta = dict[str, Any]
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_ANNOTATIONS_LIMIT = 256 << 10
_FREE_NAMES = frozenset({"roles", "clusterroles", "rolebindings", "clusterrolebindings"})
GENERATION = frozenset(
    {
        "cronjobs",
        "customresourcedefinitions",
        "daemonsets",
        "deployments",
        "endpointslices",
        "flowschemas",
        "ingressclasses",
        "ingresses",
        "jobs",
        "mutatingwebhookconfigurations",
        "networkpolicies",
        "poddisruptionbudgets",
        "pods",
        "podtemplates",
        "priorityclasses",
        "prioritylevelconfigurations",
        "replicasets",
        "replicationcontrollers",
        "resourceslices",
        "statefulsets",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    }
)
"""Plural names of built-in resources that have `metadata.generation`; all custom resources have it."""


def current_time(ahead_s: int = 0) -> str:
    """Return the time `ahead_s` seconds from now as Kubernetes writes it: `2026-01-31T12:00:00Z`."""
    return _stamp(int(time.time()) + ahead_s)


@functools.lru_cache(maxsize=8)
def _stamp(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def generated_name(prefix: str) -> str:
    """Return a name from `generateName`: the prefix (at most 58 characters) and five random ones."""
    return prefix[:58] + "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))


def counts_generation(resource: ServedResource) -> bool:
    """Return True if objects of the resource have `metadata.generation`."""
    return resource.custom or resource.plural in GENERATION


def new_metadata(resource: ServedResource, meta: ObjectMeta) -> ObjectMeta:
    """Return the metadata of a new object: the fields that a client may choose, plus uid, creation time and generation."""
    chosen = ("name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
    metadata = {key: meta[key] for key in chosen if meta.get(key)} | {"uid": str(uuid.uuid4()), "creationTimestamp": current_time()}
    return metadata | ({"generation": 1} if counts_generation(resource) else {})


CHOSEN = ("labels", "annotations", "finalizers", "ownerReferences")
"""Fields of an object's metadata that its clients choose at any time."""


def updated_metadata(meta: ObjectMeta, old: ObjectMeta) -> ObjectMeta:
    """Return an object's metadata after an update.

    Labels, annotations, finalizers and owners come from `meta`; the fields that only the server sets come from `old`.
    """
    kept = {key: value for key, value in old.items() if key not in CHOSEN}
    return kept | {key: meta[key] for key in CHOSEN if meta.get(key)}


def name_problem(resource: ServedResource, name: str) -> str:
    """Return the validation error of an object's name for this resource, as `PATH: REASON`; empty if the name is allowed."""
    if resource.plural in _FREE_NAMES:
        valid = name not in (".", "..") and "/" not in name and "%" not in name
        return "" if valid else f'metadata.name: Invalid value: "{name}": may not be "." or ".." or contain "/" or "%"'
    pattern, limit, rule_name = _SUBDOMAIN, 253, "a lowercase RFC 1123 subdomain"
    if resource.key == ("", "namespaces"):
        pattern, limit, rule_name = _LABEL, 63, "a lowercase RFC 1123 label"
    elif resource.key == ("", "services"):
        pattern, limit, rule_name = _SERVICE, 63, "a DNS-1035 label"
    if len(name) > limit:
        return f'metadata.name: Invalid value: "{name}": must be no more than {limit} characters'
    if pattern.fullmatch(name):
        return ""
    rule = "must consist of lower case alphanumeric characters, '-' or '.', and must start and end with one of the former"
    return f'metadata.name: Invalid value: "{name}": {rule_name} {rule}'


def problems(meta: ObjectMeta) -> list[str]:
    """Return the validation errors in labels, annotations, finalizers and owner references; empty if there are none."""
    errors: list[str] = []
    for key, value in meta.get("labels", {}).items():
        errors += _qualified_problems(key, "metadata.labels")
        if len(value) > 63 or (value and not _QUALIFIED.fullmatch(value)):
            rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.' (at most 63)"
            errors.append(f'metadata.labels: Invalid value: "{value}": {rule}')
    annotations = meta.get("annotations", {})
    for key in annotations:
        errors += _qualified_problems(key.lower(), "metadata.annotations")
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        errors.append(f"metadata.annotations: Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes")
    for finalizer in meta.get("finalizers", ()):
        errors += _qualified_problems(finalizer, "metadata.finalizers")
    return errors + _owner_problems(meta)


@functools.lru_cache(maxsize=4096)
def _qualified_problems(key: str, path: str) -> tuple[str, ...]:
    prefix, slash, name = key.rpartition("/")
    valid = len(name) <= 63 and _QUALIFIED.fullmatch(name) and (not slash or (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)))
    rule = (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    )
    return () if valid else (f'{path}: Invalid value: "{key}": {rule}',)


def _owner_problems(meta: ObjectMeta) -> list[str]:
    owners = meta.get("ownerReferences", ())
    errors = [
        f"metadata.ownerReferences[{index}].{key}: Required value"
        for index, owner in enumerate(owners)
        for key in ("apiVersion", "kind", "name", "uid")
        if not owner.get(key)
    ]
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        errors.append("metadata.ownerReferences: Invalid value: only one reference can have Controller set to true")
    return errors
