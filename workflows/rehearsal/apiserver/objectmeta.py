"""`metadata`: names, labels, and the fields that only the server sets (apimachinery `api/validation`)."""

import datetime
import re
import secrets
import uuid
from typing import Any

from workflows.rehearsal.apiserver.resources import Resource

Meta = dict[str, Any]
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_ANNOTATIONS_LIMIT = 256 << 10
_ALPHANUMERIC = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with one of the first"
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
"""Built-in resources that count spec changes; custom ones all do."""


def now() -> str:
    """The time as Kubernetes writes it, in UTC to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def in_seconds(seconds: int) -> str:
    """The time `seconds` from now."""
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return later.strftime("%Y-%m-%dT%H:%M:%SZ")


def generated_name(prefix: str) -> str:
    """A name for `generateName`."""
    return prefix[:58] + "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))


def counts_generation(resource: Resource) -> bool:
    """Whether the resource has `metadata.generation`."""
    return resource.custom or resource.plural in GENERATION


def created(resource: Resource, meta: Meta) -> Meta:
    """The metadata of a new object: what the client may choose, and what the server sets."""
    chosen = ("name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
    made = {key: meta[key] for key in chosen if meta.get(key)} | {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
    return made | ({"generation": 1} if counts_generation(resource) else {})


def updated(meta: Meta, old: Meta) -> Meta:
    """The metadata after an update: what only the server sets is kept from `old`."""
    chosen = ("labels", "annotations", "finalizers", "ownerReferences")
    kept = {key: value for key, value in old.items() if key not in chosen}
    return kept | {key: meta[key] for key in chosen if meta.get(key)}


def name_problem(resource: Resource, name: str) -> str:
    """Why the name is not allowed; empty when it is."""
    if resource.plural in _FREE_NAMES:
        good = name not in (".", "..") and "/" not in name and "%" not in name
        return "" if good else f'metadata.name: Invalid value: "{name}": may not be "." or ".." or contain "/" or "%"'
    pattern, limit, what = _SUBDOMAIN, 253, "a lowercase RFC 1123 subdomain"
    if resource.key == ("", "namespaces"):
        pattern, limit, what = _LABEL, 63, "a lowercase RFC 1123 label"
    elif resource.key == ("", "services"):
        pattern, limit, what = _SERVICE, 63, "a DNS-1035 label"
    if len(name) > limit:
        return f'metadata.name: Invalid value: "{name}": must be no more than {limit} characters'
    if pattern.fullmatch(name):
        return ""
    rule = "must consist of lower case alphanumeric characters, '-' or '.', and must start and end with one of the former"
    return f'metadata.name: Invalid value: "{name}": {what} {rule}'


def problems(meta: Meta) -> list[str]:
    """What is wrong with labels, annotations, finalizers and owners."""
    found = []
    for key, value in meta.get("labels", {}).items():
        found += _qualified_problems(key, "metadata.labels")
        if len(value) > 63 or (value and not _QUALIFIED.fullmatch(value)):
            rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.' (at most 63)"
            found.append(f'metadata.labels: Invalid value: "{value}": {rule}')
    annotations = meta.get("annotations", {})
    for key in annotations:
        found += _qualified_problems(key.lower(), "metadata.annotations")
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        found.append(f"metadata.annotations: Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes")
    for finalizer in meta.get("finalizers", ()):
        found += _qualified_problems(finalizer, "metadata.finalizers")
    return found + _owner_problems(meta)


def _qualified_problems(key: str, path: str) -> list[str]:
    prefix, slash, name = key.rpartition("/")
    good = len(name) <= 63 and _QUALIFIED.fullmatch(name) and (not slash or (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)))
    rule = (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    )
    return [] if good else [f'{path}: Invalid value: "{key}": {rule}']


def _owner_problems(meta: Meta) -> list[str]:
    found = []
    owners = meta.get("ownerReferences", ())
    for index, owner in enumerate(owners):
        found += [
            f"metadata.ownerReferences[{index}].{key}: Required value"
            for key in ("apiVersion", "kind", "name", "uid")
            if not owner.get(key)
        ]
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        found.append("metadata.ownerReferences: Invalid value: only one reference can have Controller set to true")
    return found
