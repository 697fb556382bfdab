"""The accounts of the target against the real authorizer: each can do what its task asked in a rehearsal, and none can do more."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from kubelab import kubelet_port, product
from kubelab.control_plane import ControlPlane
from kubelab.keeper import RealState

from workflows import examples
from workflows.rehearsal.processes import Existing
from workflows.rehearsal.rehearse import Options
from workflows.rehearsal.stand import stand
from workflows.spec import load
from workflows.stages import ORDER

SPACE = "bringup"
AGENT = "bringup "
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
"""Verb, API group, resource, namespace that no account of ours may have."""


class Asked(NamedTuple):
    """One kind of request of one task."""

    task: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    path: str


@pytest.fixture(scope="module")
def recorded(bare: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, ...]]:
    """What each task asked of the target in one whole rehearsal; its rendered accounts are there afterwards."""
    folder = tmp_path_factory.mktemp("rights")
    before = bare.snapshot()
    with kubelet_port.serving(folder / "kubelets") as logs:
        existing = Existing(kubeconfig=bare.kubeconfig, pod_logs=logs)
        with stand(load(examples.path("h200-16")), folder / "stand", Options(existing=existing), RealState(bare, logs)) as place:
            assert {stage: place.run(stage).exit_code for stage in ORDER} == dict.fromkeys(ORDER, 0)
    rows = {_asked(row) for row in bare.audited() if row.get("userAgent", "").startswith(AGENT)}
    made = product.bringup(folder / "home", "render", "h200-16", "--out", str(folder / "made"))
    assert made.returncode == 0, made.stderr
    bare.kubectl("apply", "--server-side", "-f", str(folder / "made/target-rbac.yaml"))
    yield tuple(sorted(rows))
    bare.restore(before)


def test_every_task_may_do_what_it_does(bare: ControlPlane, recorded: tuple[Asked, ...]) -> None:
    assert len({asked.task for asked in recorded}) > 20
    refused = [asked for asked in recorded if not _allowed(bare, asked)]
    assert not refused, "\n".join(map(str, refused))


def test_no_account_may_do_what_none_needs(bare: ControlPlane, recorded: tuple[Asked, ...]) -> None:
    accounts = bare.kubectl("get", "serviceaccounts", "-n", SPACE, "-o", "name").split()
    tasks = [account.removeprefix("serviceaccount/bringup-") for account in accounts if "bringup-" in account]
    assert len(tasks) > 20
    for task in tasks:
        for verb, group, resource, namespace in DENIED:
            name, _, sub = resource.partition("/")
            assert not _allowed(bare, Asked(task, verb, group, name, sub, namespace, "")), (task, verb, resource)


def _asked(row: dict[str, object]) -> Asked:
    about = row.get("objectRef")
    named = about if isinstance(about, dict) else {}
    parts = [str(named.get(key, "")) for key in ("apiGroup", "resource", "subresource", "namespace")]
    path = "" if named else str(row["requestURI"]).partition("?")[0]
    task = str(row["userAgent"]).removeprefix(AGENT).replace(".", "-").replace("_", "-")
    return Asked(task, str(row["verb"]), *parts, path)


def _allowed(plane: ControlPlane, asked: Asked) -> bool:
    """What the real authorizer says of the task's own account."""
    about = {
        "verb": asked.verb,
        "group": asked.group,
        "resource": asked.resource,
        "subresource": asked.subresource,
        "namespace": asked.namespace,
    }
    what = {"nonResourceAttributes": {"verb": asked.verb, "path": asked.path}} if asked.path else {"resourceAttributes": about}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{SPACE}", "system:authenticated"]
    spec = {"user": f"system:serviceaccount:{SPACE}:bringup-{asked.task}", "groups": groups, **what}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool(plane.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])
