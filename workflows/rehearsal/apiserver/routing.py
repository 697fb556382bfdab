"""Request paths: the resource, object or sub-resource that a URL names, and the attributes that an authorizer would get."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.listing import TRUE_VALUES
from workflows.rehearsal.apiserver.served_resources import ResourceTable, ServedResource

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True)
class RequestTarget:
    """The resource, object or sub-resource that a request path names.

    `name` is empty for a collection, `namespace` for cluster-wide resources, `subresource` for the object itself.
    """

    resource: ServedResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def request_target(steps: list[str], resources: ResourceTable) -> RequestTarget:
    """Return the resource, object or sub-resource that a path below `/api` or `/apis` names. `steps` are its non-empty segments.

    Raises StatusError (404) if nothing is served there.
    """
    group, version, rest = ("", steps[1], steps[2:]) if steps[0] == "api" else (steps[1], steps[2], steps[3:])
    namespace = ""
    # /namespaces/NAME/status is a sub-resource of the namespace, no collection in it
    of_namespace = not group and len(rest) == 3 and rest[2] in resources.core("namespaces").subresources
    if rest[0] == "namespaces" and len(rest) > 2 and not of_namespace:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        raise errors.no_such_path()
    resource = resources.find(group, version, rest[0])
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and subresource not in resource.subresources:
        raise errors.no_such_path()
    if bool(namespace) > resource.namespaced or (name and resource.namespaced and not namespace):
        raise errors.no_such_path()
    return RequestTarget(resource, namespace, name, subresource)


class RequestKind(NamedTuple):
    """A request reduced to the attributes that a real API server gives its authorizer, for a list of the rights that clients need.

    `agent` is the User-Agent. `resource` includes a sub-resource after a slash. `path` is set only if the request names no
    resource. A request for a namespace object counts as one in that namespace, as on a real server.
    """

    agent: str
    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    path: str = ""


def request_kind(agent: str, method: str, steps: list[str], query: Mapping[str, str]) -> RequestKind:
    """Return what an authorizer would get for a request with this User-Agent, method, path and query.

    `steps` are the non-empty segments of the path. It may name resources that are not served, because a real server asks its
    authorizer before it looks anything up.
    """
    match steps:
        case ["api", _, *rest] if rest:
            group = ""
        case ["apis", group, _, *rest] if rest:
            pass
        case _:
            return RequestKind(agent, method.lower(), path="/" + "/".join(steps))
    namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 1 else ""
    if namespace and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    resource, name, sub = (*rest, "", "")[:3]
    return RequestKind(agent, _verb(method, name, query), group, f"{resource}/{sub}" if sub else resource, namespace)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in ("GET", "HEAD"):
        return "get" if name else "watch" if query.get("watch") in TRUE_VALUES else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return _VERBS.get(method, method.lower())
