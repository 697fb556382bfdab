"""Discovery documents: groups, versions and resources that are served, and the version of the server."""

from collections.abc import Iterator
from typing import Any

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.served_resources import ResourceTable, ServedResource

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
    """Return the answer to `/version`. `git_version` is for instance `v1.34.4+rke2r1`."""
    major, minor = git_version.removeprefix("v").split(".")[:2]
    build = {"gitCommit": "", "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "emulated"}
    return {"major": major, "minor": minor, "gitVersion": git_version, "platform": "linux/amd64", **build}


def core_versions() -> dict[str, Any]:
    """Return the answer to `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups(resources: ResourceTable) -> dict[str, Any]:
    """Return the answer to `/apis`."""
    listed = [_group(name, versions) for name, versions in resources.groups().items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(resources: ResourceTable, name: str) -> dict[str, Any]:
    """Return the answer to `/apis/GROUP`. Raises StatusError (404) if the group is not served."""
    versions = resources.groups().get(name)
    if versions is None:
        raise errors.no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(resources: ResourceTable, group_name: str, version_name: str) -> dict[str, Any]:
    """Return the answer to `/api/v1` or `/apis/GROUP/VERSION`. Raises StatusError (404) if the version is not served."""
    matching = [resource for resource in resources if (resource.group, resource.version) == (group_name, version_name)]
    if not matching:
        raise errors.no_such_path()
    rows = [row for resource in matching for row in _rows(resource)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": matching[0].api_version, "resources": rows}


def _rows(resource: ServedResource) -> Iterator[dict[str, Any]]:
    row: dict[str, Any] = {"name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced}
    row |= {"kind": resource.kind, "verbs": _VERBS}
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    yield row
    for name in sorted(resource.subresources):
        verbs, kind = _SUBRESOURCES[name]
        subresource = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
        yield subresource | {"kind": resource.kind, "verbs": verbs} | kind
