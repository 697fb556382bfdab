"""Comparing the requests of steps to an emulated API server with the rights that rendered Roles give them."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from steps.clients.kube import kubeconfig
from workflows.rehearsal import simulated_cluster
from workflows.rehearsal.apiserver.routing import RequestKind

STEP = "bringup "
"""Before STAGE.TASK in the User-Agent of a step."""
ANYBODY = frozenset(
    {
        ("get", "", "", "/readyz"),
        ("get", "", "", "/version"),
        ("create", "authentication.k8s.io", "selfsubjectreviews", ""),
    }
)
"""Requests open to every account by system:public-info-viewer and system:basic-user, besides discovery (`/api/…`, `/apis/…`)."""

Right = tuple[str, str, str, str]
"""Verb, API group, resource, namespace ("" for all)."""


def asked(file: Path) -> set[RequestKind]:
    """Return the kinds of requests made so far to the API server that a kubeconfig names."""
    access = kubeconfig.load(file)
    answer = simulated_cluster.call_control_api("GET", access.server + "/emulation/requests", access.token)
    return {RequestKind(**row) for row in msgspec.json.decode(answer)}


def forget(file: Path) -> None:
    """Have the API server that a kubeconfig names forget which requests were made so far."""
    access = kubeconfig.load(file)
    simulated_cluster.call_control_api("DELETE", access.server + "/emulation/requests", access.token)


def rights(rendered: Iterable[dict[str, Any]]) -> dict[str, set[Right]]:
    """Account → its rights, by the roles that are bound to it."""
    objects = list(rendered)
    roles = {(row["kind"], _place(row)): row["rules"] for row in objects if row["kind"] in ("Role", "ClusterRole")}
    found: defaultdict[str, set[Right]] = defaultdict(set)
    for binding in (row for row in objects if row["kind"].endswith("RoleBinding")):
        space, reference = binding["metadata"].get("namespace", ""), binding["roleRef"]
        for rule in roles[reference["kind"], (space, reference["name"])]:
            pairs = [(group, resource) for group in rule["apiGroups"] for resource in rule["resources"]]
            held = {(verb, *pair, space) for pair in pairs for verb in rule["verbs"]}
            for subject in binding["subjects"]:
                found[subject["name"]] |= held
    return found


def _place(row: dict[str, Any]) -> tuple[str, str]:
    return row["metadata"].get("namespace", ""), row["metadata"]["name"]


def may(held: set[Right], verb: str, group: str, resource: str, namespace: str) -> bool:
    """Return True if rights cover a request."""
    return bool({(verb, group, resource, ""), (verb, group, resource, namespace)} & held)


def refused(rows: Iterable[RequestKind], rendered: Iterable[dict[str, Any]]) -> list[str]:
    """The requests of steps that a target with these Roles would have refused."""
    held, found = rights(rendered), []
    for row in sorted(rows):
        if not row.agent.startswith(STEP):
            continue
        account = "bringup-" + row.agent.removeprefix(STEP).replace(".", "-").replace("_", "-")
        public = (row.verb, row.group, row.resource, row.path) in ANYBODY or row.path.startswith(("/api/", "/apis/"))
        if not public and not may(held.get(account, set()), *row[1:5]):
            found.append(f"{account}: {row.verb} {row.resource or row.path} ({row.group or 'core'}) in {row.namespace or 'all'}")
    return found
