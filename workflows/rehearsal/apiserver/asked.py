"""Which kinds of requests came from whom, as a real API server would ask its authorizer about them: before it looks at anything."""

from collections.abc import Mapping
from typing import NamedTuple

from workflows.rehearsal.apiserver.watching import TRUE

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Asked(NamedTuple):
    """One kind of request. `agent` is its User-Agent; `resource` has its sub-resource behind a slash; `path` is that of a request
    that is about no resource. What is about a namespace itself is in it, as a real API server counts it."""

    agent: str
    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    path: str = ""


def kind(agent: str, method: str, steps: list[str], query: Mapping[str, str]) -> Asked:
    """The kind of a request whose path has these non-empty steps. Whether anything is served there is not asked."""
    match steps:
        case ["api", _, *rest] if rest:
            group = ""
        case ["apis", group, _, *rest] if rest:
            pass
        case _:
            return Asked(agent, method.lower(), path="/" + "/".join(steps))
    namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 1 else ""
    if namespace and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    resource, name, sub = (*rest, "", "")[:3]
    return Asked(agent, _verb(method, name, query), group, f"{resource}/{sub}" if sub else resource, namespace)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in ("GET", "HEAD"):
        return "get" if name else "watch" if query.get("watch") in TRUE else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return _VERBS.get(method, method.lower())
