"""Answers of the Kubernetes API: null for an empty list of Go counts as absent; other odd forms are errors that say so."""

from pathlib import Path

import pytest

from steps.clients.kube import client
from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Kube, Page
from steps.contract.exit import ExitCode
from steps.contract.verdict import FailureClass
from steps.errors import Garbled, NotUnderstood, Temporary
from steps.stages.shared.kube_objects import Conditioned
from workflows.rehearsal.apiserver import serve_in_thread

FRESH = b"""{"apiVersion": "v1", "kind": "List", "metadata": {"continue": null}, "items": [{
  "metadata": {"name": "queues.scheduling.volcano.sh"},
  "spec": {"group": "scheduling.volcano.sh", "names": {"plural": "queues"}, "versions": [{"name": "v1beta1", "served": true}]},
  "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}}]}"""
"""A CRD a moment after it was created, as a real API server lists it."""


ASKED = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def test_a_fresh_definition_is_read() -> None:
    (one,) = client.decode(ASKED, FRESH, Page[Conditioned]).items
    assert one.status.conditions == ()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"kind": "Queue", "status": {"conditions": "many"}, "metadata": null}', "this Queue has a form"),
        (b'{"kind": "List", "items": [{"status": {"conditions": null}}, {"status": 3}]}', "Expected `object`, got `int`"),
        (b'{"items": [], "login": "https://sso.example.org"}', "missing required field `kind`"),
        (b"[]", "this answer has a form"),
    ],
)
def test_another_form_is_an_error_that_trying_again_does_not_mend(answer: bytes, why: str) -> None:
    with pytest.raises(NotUnderstood) as caught:
        client.decode(ASKED, answer, Page[Conditioned] if b"items" in answer else Conditioned)
    assert str(caught.value).startswith(f"{ASKED}: this ")
    assert why in str(caught.value)
    assert (caught.value.exit_code, caught.value.failure_class) == (ExitCode.GATE_FAILED, FailureClass.DEPENDENCY)
    assert not isinstance(caught.value, Temporary)


@pytest.mark.parametrize("path", ["/api/v1/namespaces/default", "/version"])
def test_what_is_no_list_is_no_empty_list(path: str, tmp_path: Path) -> None:
    """A Namespace has no `items`, and a gate that counts would find none."""
    with serve_in_thread() as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig)
        found = Kube.from_file(tmp_path / "kubeconfig")
        with pytest.raises(NotUnderstood, match=f"^GET {path}: this (is a Namespace|object has a form)"):
            found.list(path, Conditioned)


@pytest.mark.parametrize("answer", [b"<html>proxy</html>", b"", FRESH[:100], b'{"items": [{"metadata": "\xff"}]}', b'{"items": 3'])
def test_what_is_no_json_is_temporary(answer: bytes) -> None:
    with pytest.raises(Garbled) as caught:
        client.decode(ASKED, answer, Page[Conditioned])
    assert str(caught.value).startswith(f"{ASKED}: the answer is no JSON")
    assert caught.value.exit_code == ExitCode.TEMPORARY


def test_what_is_created_has_no_field_that_the_server_would_drop(tmp_path: Path) -> None:
    with serve_in_thread() as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig)
        found = Kube.from_file(tmp_path / "kubeconfig")
        named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "default"}}
        with pytest.raises(ApiError, match='unknown field "datum"') as caught:
            found.create(named | {"datum": {"x": "y"}})
        assert caught.value.status == 400
        assert found.create(named | {"data": {"x": "y"}})["data"] == {"x": "y"}
