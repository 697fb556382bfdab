"""URL path → what it names: a resource's collection, one object, or a sub-resource of it."""

from dataclasses import dataclass

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.resources import Resource, Resources


@dataclass(frozen=True)
class Target:
    """`name` is empty for a collection, `namespace` for cluster-wide ones, `subresource` for the object itself."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def find(steps: list[str], resources: Resources) -> Target:
    """The target of a path below `/api` or `/apis`, given as its non-empty steps.

    Raises:
        ApiError: 404, nothing is served there.
    """
    group, version, rest = ("", steps[1], steps[2:]) if steps[0] == "api" else (steps[1], steps[2], steps[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not _is_namespace_subresource(group, rest, resources):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        raise errors.no_such_path()
    resource = resources.find(group, version, rest[0])
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and subresource not in resource.subresources:
        raise errors.no_such_path()
    if bool(namespace) > resource.namespaced or (name and resource.namespaced and not namespace):
        raise errors.no_such_path()
    return Target(resource, namespace, name, subresource)


def _is_namespace_subresource(group: str, rest: list[str], resources: Resources) -> bool:
    return not group and len(rest) == 3 and rest[2] in resources.core("namespaces").subresources
