"""Discovery: which groups, versions and resources are served, and which server this is."""

from collections.abc import Iterator
from typing import Any

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.resources import Resource, Resources

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCES: dict[str, tuple[list[str], dict[str, str]]] = {
    "log": (["get"], {}),
    "finalize": (["update"], {}),
    "scale": (["get", "patch", "update"], {"group": "autoscaling", "version": "v1", "kind": "Scale"}),
    "eviction": (["create"], {"group": "policy", "version": "v1", "kind": "Eviction"}),
    "binding": (["create"], {"kind": "Binding"}),
    "status": (["get", "patch", "update"], {}),
}


def version(git_version: str) -> dict[str, str]:
    """The answer to `/version`; `git_version` such as `v1.34.4+rke2r1`."""
    major, minor = git_version.removeprefix("v").split(".")[:2]
    build = {"gitCommit": "", "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "emulated"}
    return {"major": major, "minor": minor, "gitVersion": git_version, "platform": "linux/amd64", **build}


def core_versions() -> dict[str, Any]:
    """The answer to `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups(resources: Resources) -> dict[str, Any]:
    """The answer to `/apis`."""
    listed = [_group(name, versions) for name, versions in resources.groups().items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(resources: Resources, name: str) -> dict[str, Any]:
    """The answer to `/apis/GROUP`.

    Raises:
        ApiError: 404.
    """
    versions = resources.groups().get(name)
    if versions is None:
        raise errors.no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(resources: Resources, group_name: str, version_name: str) -> dict[str, Any]:
    """The answer to `/api/v1` and `/apis/GROUP/VERSION`.

    Raises:
        ApiError: 404.
    """
    found = [resource for resource in resources if (resource.group, resource.version) == (group_name, version_name)]
    if not found:
        raise errors.no_such_path()
    rows = [row for resource in found for row in _rows(resource)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": found[0].api_version, "resources": rows}


def _rows(resource: Resource) -> Iterator[dict[str, Any]]:
    row: dict[str, Any] = {"name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced}
    row |= {"kind": resource.kind, "verbs": _VERBS}
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    yield row
    for name in sorted(resource.subresources):
        verbs, kind = _SUBRESOURCES[name]
        place = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
        yield place | {"kind": resource.kind, "verbs": verbs} | kind
