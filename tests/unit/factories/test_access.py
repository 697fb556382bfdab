"""Answers of the emulated authorizer: as RBAC decides from Roles and bindings, for users, groups and service accounts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Kube
from steps.stages.shared.kube_reader import AccessQuestion
from workflows.rehearsal.apiserver.emulated_server import serve_in_thread

GROUP = "rbac.authorization.k8s.io"


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with serve_in_thread() as server:
        path = tmp_path / "kubeconfig"
        path.write_text(server.kubeconfig)
        client = Kube.from_file(path)
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        yield client


def grant(kube: Kube, kind: str, subject: dict[str, str], rule: dict[str, list[str]], namespace: str = "") -> None:
    """Create a Role or ClusterRole with one rule, and bind it to a subject."""
    place = {"namespace": namespace} if namespace else {}
    kube.create({"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": "r", **place}, "rules": [rule]})
    ref = {"apiGroup": GROUP, "kind": kind, "name": "r"}
    binding = {"apiVersion": f"{GROUP}/v1", "kind": f"{kind}Binding", "metadata": {"name": "b", **place}}
    kube.create({**binding, "roleRef": ref, "subjects": [subject]})


PODS = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]}


def test_nobody_may_do_anything_without_a_binding(kube: Kube) -> None:
    assert not kube.may(AccessQuestion(user="ada", verb="get", resource="pods", namespace="team"))


def test_a_role_holds_in_its_namespace_alone(kube: Kube) -> None:
    grant(kube, "Role", {"kind": "User", "apiGroup": GROUP, "name": "ada"}, PODS, "team")
    assert kube.may(AccessQuestion(user="ada", verb="get", resource="pods", namespace="team"))
    assert kube.may(AccessQuestion(user="ada", verb="get", resource="pods", subresource="log", namespace="team"))
    assert not kube.may(AccessQuestion(user="ada", verb="get", resource="pods", namespace="default"))
    assert not kube.may(AccessQuestion(user="ada", verb="get", resource="pods"))
    assert not kube.may(AccessQuestion(user="ada", verb="delete", resource="pods", namespace="team"))
    assert not kube.may(AccessQuestion(user="ada", verb="get", resource="pods", subresource="exec", namespace="team"))
    assert not kube.may(AccessQuestion(user="ada", verb="get", resource="pods", api_group="other.example.org", namespace="team"))
    assert not kube.may(AccessQuestion(user="eve", verb="get", resource="pods", namespace="team"))


def test_a_cluster_role_binding_holds_everywhere(kube: Kube) -> None:
    subject = {"kind": "Group", "apiGroup": GROUP, "name": "ops"}
    grant(kube, "ClusterRole", subject, {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})
    assert kube.may(AccessQuestion(user="ada", groups=("ops",), verb="patch", resource="secrets", namespace="team"))
    assert kube.may(AccessQuestion(user="ada", groups=("ops",), verb="create", resource="nodes"))
    assert not kube.may(AccessQuestion(user="ops", verb="create", resource="nodes"))


def test_a_service_account_is_a_user_of_its_namespace(kube: Kube) -> None:
    grant(kube, "Role", {"kind": "ServiceAccount", "name": "builder", "namespace": "team"}, PODS, "team")
    assert kube.may(AccessQuestion(user="system:serviceaccount:team:builder", verb="get", resource="pods", namespace="team"))
    assert not kube.may(AccessQuestion(user="system:serviceaccount:other:builder", verb="get", resource="pods", namespace="team"))


def test_a_review_without_a_subject_is_refused(kube: Kube) -> None:
    with pytest.raises(ApiError):
        kube.may(AccessQuestion(user="", verb="get", resource="pods"))
