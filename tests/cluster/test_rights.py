"""The rendered accounts against the real authorizer: each can do what its steps asked in a rehearsal, and nothing else."""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from kubelab import product
from kubelab.control_plane import ControlPlane

from steps.clients.kube import kubeconfig
from steps.clients.kube.api import Http
from steps.contract.task import Verb
from workflows import examples

SPACE = "bringup"
AGENT = "bringup "
CLUSTER = "h200-16"
ANNOUNCED = "    announce: {webhook: {secret: {name: chat, key: url}}}\n"
"""Of the approval at the end of the example: the run itself tells it."""
EVENTS = 'events: [{name: replaced, selector: discriminator == "dc1"}]\n'
ARGO = "argoproj.io"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection", "bind", "escalate"})

GRANTED = {
    "bringup-executor": {("create", ARGO, "workflowtaskresults"), ("patch", ARGO, "workflowtaskresults")},
    f"bringup-events-{CLUSTER}": {
        ("create", ARGO, "workflows"),
        ("list", ARGO, "workfloweventbindings"),
        ("get", ARGO, "workflowtemplates"),
    },
}
"""All rights of accounts in home: Argo's own containers report results, a sender of events starts runs. Verbs have none."""

DENIED = (
    ("delete", "", "nodes", ""),
    ("create", "", "pods/exec", "default"),
    ("get", "", "secrets", "default"),
    ("create", "", "serviceaccounts/token", "kube-system"),
    ("impersonate", "", "users", ""),
    ("create", "certificates.k8s.io", "certificatesigningrequests", ""),
    ("delete", "", "namespaces", ""),
    ("delete", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("deletecollection", "", "pods", "kube-system"),
)
"""Verb, API group, resource, namespace that no account of ours may have, in home or in a target."""

DENIED_IN_HOME = (
    ("get", ARGO, "workflows", SPACE),
    ("list", ARGO, "workflows", SPACE),
    ("patch", ARGO, "workflows", SPACE),
    ("delete", ARGO, "workflows", SPACE),
    ("create", ARGO, "workflows", "default"),
    ("create", ARGO, "workflowtemplates", SPACE),
    ("patch", ARGO, "workflowtemplates", SPACE),
    ("get", ARGO, "clusterworkflowtemplates", ""),
    ("create", ARGO, "cronworkflows", SPACE),
    ("get", ARGO, "workflowtaskresults", SPACE),
    ("delete", ARGO, "workflowtaskresults", SPACE),
    ("create", ARGO, "workflowtaskresults", "default"),
    ("get", "", "secrets", SPACE),
    ("list", "", "secrets", SPACE),
    ("get", "", "configmaps", SPACE),
    ("create", "", "pods", SPACE),
    ("get", "", "pods", SPACE),
    ("get", "", "pods/log", SPACE),
    ("delete", "", "pods", SPACE),
    ("create", "", "pods/exec", SPACE),
    ("create", "", "serviceaccounts/token", SPACE),
    ("create", "rbac.authorization.k8s.io", "rolebindings", SPACE),
    ("patch", "", "persistentvolumeclaims", SPACE),
)
"""Verb, API group, resource and namespace that no account of home may have, most of them in home's own namespace."""


UNUSED = (
    ("*", "create", "coordination.k8s.io", "leases"),  # the task that finds none
    ("*", "patch", "coordination.k8s.io", "leases"),  # the task that finds one that is due
    ("*-judge", "patch", "", "nodes"),  # cordons what it sets aside
    ("validation-apply", "bind", "rbac.authorization.k8s.io", "clusterroles"),  # asked by the authorizer itself, for a binding
    ("gang-*", "*", "batch", "jobs"),  # every check may make Jobs; those of gangs are Volcano's, and that of NCCL is an MPIJob
    ("validation-functional", "*", "batch", "jobs"),
    ("validation-localise", "delete", "batch", "jobs"),  # those of its rounds go all at once, by their label
    ("slurm-drain", "create", "", "pods/exec"),  # a WebSocket is a GET, for which newer API servers demand this right too
)
"""Rights to change something that a healthy run does not use: patterns of task, verb, API group and resource."""
SOMETIMES = (("*", "deletecollection", "", "pods"),)
"""Rights that a healthy run may not use: garbage collection may remove pods of a deleted Job before the check looks for them."""


class Asked(NamedTuple):
    """One kind of request of one task. `resource` has its sub-resource behind a slash."""

    task: str
    verb: str
    group: str
    resource: str
    namespace: str
    path: str = ""


class Recorded(NamedTuple):
    """Requests of each task to the target in one rehearsal, the rendered files, and the API server."""

    asked: tuple[Asked, ...]
    rendered: Path
    api: Http


@pytest.fixture(scope="module")
def recorded(bare: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A rehearsal as a user starts it, whose requests the API server audits; the rendered accounts are there afterwards."""
    folder = tmp_path_factory.mktemp("rights")
    before = bare.snapshot()
    done = product.bringup(folder / "home", "rehearse", CLUSTER, "--kubeconfig", str(bare.kubeconfig))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    rows = {_asked(row) for row in bare.audited() if row.get("userAgent", "").startswith(AGENT)}
    (folder / "spec.yaml").write_text(examples.path(CLUSTER).read_text() + ANNOUNCED + EVENTS)
    made = product.bringup(folder / "home", "render", str(folder / "spec.yaml"), "--out", str(folder / "made"))
    assert made.returncode == 0, made.stderr
    bare.kubectl("apply", "--server-side", "-f", str(folder / "made/target-rbac.yaml"))
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    accounts = [row for row in _objects(folder / "made", "rbac", "starts") if row["kind"] in kinds]
    bare.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(accounts))
    yield Recorded(tuple(sorted(rows)), folder / "made", Http(kubeconfig.load(bare.kubeconfig)))
    bare.restore(before)


def test_every_task_may_do_what_it_does(recorded: Recorded) -> None:
    print(f"{len(recorded.asked)} kinds of requests of {len({asked.task for asked in recorded.asked})} tasks")
    assert len({asked.task for asked in recorded.asked}) > 20
    refused = [asked for asked in recorded.asked if not _allowed(recorded.api, f"bringup-{asked.task}", *asked[1:])]
    assert not refused, "\n".join(map(str, refused))


def test_no_task_may_write_what_none_wrote(recorded: Recorded) -> None:
    """Reading rights are wider: what a task reads when its gate does not pass shows in no healthy run."""
    used = {(*asked[:4], space) for asked in recorded.asked for space in (asked.namespace, "")}
    applied = {
        (task, "create", *rest) for task, verb, *rest in used if verb == "patch"
    }  # an apply takes both, and is audited as patch
    unused = sorted(_writes(recorded.rendered) - used - applied)
    assert not [right for right in unused if not any(_explains(row, right) for row in UNUSED + SOMETIMES)]
    assert not [row for row in UNUSED if not any(_explains(row, right) for right in unused)], "a row of the table explains nothing"


def test_no_account_of_the_target_may_do_what_none_needs(recorded: Recorded) -> None:
    accounts = [row["metadata"]["name"] for row in _objects(recorded.rendered, "target-rbac") if row["kind"] == "ServiceAccount"]
    assert len(accounts) > 20
    allowed = [(account, *row) for account in accounts for row in DENIED if _allowed(recorded.api, account, *row)]
    assert not allowed


def test_accounts_of_home_may_do_what_is_listed_and_nothing_else(bare: ControlPlane, recorded: Recorded) -> None:
    accounts = [row["metadata"]["name"] for row in _objects(recorded.rendered, "rbac", "starts") if row["kind"] == "ServiceAccount"]
    verbs = {f"bringup-{verb}" for verb in Verb}
    assert set(accounts) - verbs == set(GRANTED)
    assert len(verbs & set(accounts)) >= 10
    assert "bringup-announce" in accounts
    for account in accounts:
        granted = GRANTED.get(account, set())
        assert _rules(bare, account, SPACE) == granted, account
        assert _rules(bare, account, "default") == set(), account
        assert all(_allowed(recorded.api, account, *row, SPACE) for row in granted), account
        allowed = [(account, *row) for row in (*DENIED, *DENIED_IN_HOME) if _allowed(recorded.api, account, *row)]
        assert not allowed


def _explains(row: tuple[str, str, str, str], right: tuple[str, ...]) -> bool:
    return all(fnmatchcase(have, want) for want, have in zip(row, right, strict=False))


def _writes(rendered: Path) -> set[tuple[str, ...]]:
    """Every right to change something: task, verb, group, resource, namespace ("" for all)."""
    found: set[tuple[str, ...]] = set()
    for role in _objects(rendered, "target-rbac"):
        if role["kind"] not in ("Role", "ClusterRole"):
            continue
        task, space = role["metadata"]["name"].removeprefix("bringup-"), role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            pairs = [(group, resource) for group in rule["apiGroups"] for resource in rule["resources"]]
            found |= {(task, verb, *pair, space) for pair in pairs for verb in WRITES & set(rule["verbs"])}
    return found


def _objects(rendered: Path, *names: str) -> list[dict[str, Any]]:
    return [row for name in names for row in yaml.safe_load_all((rendered / f"{name}.yaml").read_text())]


def _asked(row: dict[str, Any]) -> Asked:
    named = row.get("objectRef") or {}
    resource = "/".join(filter(None, (named.get("resource"), named.get("subresource"))))
    path = "" if named else str(row["requestURI"]).partition("?")[0]
    task = str(row["userAgent"]).removeprefix(AGENT).replace(".", "-").replace("_", "-")
    return Asked(task, str(row["verb"]), named.get("apiGroup", ""), resource, named.get("namespace", ""), path)


def _user(account: str) -> str:
    return f"system:serviceaccount:{SPACE}:{account}"


def _allowed(api: Http, account: str, verb: str, group: str, resource: str, namespace: str, path: str = "") -> bool:
    """Return True if the real authorizer grants a right to an account."""
    name, _, sub = resource.partition("/")
    about = {"verb": verb, "group": group, "resource": name, "subresource": sub, "namespace": namespace}
    what = {"nonResourceAttributes": {"verb": verb, "path": path}} if path else {"resourceAttributes": about}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{SPACE}", "system:authenticated"]
    spec = {"user": _user(account), "groups": groups, **what}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool(
        json.loads(api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=review))["status"]["allowed"]
    )


def _rules(plane: ControlPlane, account: str, namespace: str) -> set[tuple[str, str, str]]:
    """Everything that the real authorizer lets an account do in a namespace, but for asking about itself."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    status = plane.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review, _user(account))["status"]
    assert not status["incomplete"], status
    rules = [
        rule for rule in status["resourceRules"] if not {"authorization.k8s.io", "authentication.k8s.io"} & set(rule["apiGroups"])
    ]
    return {
        (verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
