"""What the API answers: nulls of Go's empty lists are as good as absent, and what else is odd is an error that says what."""

import pytest

from steps.clients import kube
from steps.clients.kube import Page
from steps.contract.exit import ExitCode
from steps.contract.verdict import FailureClass
from steps.errors import Garbled, NotUnderstood, Temporary
from steps.probes.workloads import Conditioned

FRESH = b"""{"apiVersion": "v1", "kind": "List", "metadata": {"continue": null}, "items": [{
  "metadata": {"name": "queues.scheduling.volcano.sh"},
  "spec": {"group": "scheduling.volcano.sh", "names": {"plural": "queues"}, "versions": [{"name": "v1beta1", "served": true}]},
  "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}}]}"""
"""A CRD a moment after it was created, as a real API server lists it."""


ASKED = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def test_a_fresh_definition_is_read() -> None:
    (one,) = kube.decoded(ASKED, FRESH, Page[Conditioned]).items
    assert one.status.conditions == ()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"kind": "Queue", "status": {"conditions": "many"}, "metadata": null}', "this Queue has a form"),
        (b'{"items": [{"status": {"conditions": null}}, {"status": 3}]}', "Expected `object`, got `int`"),
        (b"[]", "this answer has a form"),
    ],
)
def test_another_form_is_an_error_that_trying_again_does_not_mend(answer: bytes, why: str) -> None:
    with pytest.raises(NotUnderstood) as caught:
        kube.decoded(ASKED, answer, Page[Conditioned] if b"items" in answer else Conditioned)
    assert str(caught.value).startswith(f"{ASKED}: this ")
    assert why in str(caught.value)
    assert (caught.value.exit_code, caught.value.failure_class) == (ExitCode.GATE_FAILED, FailureClass.DEPENDENCY)
    assert not isinstance(caught.value, Temporary)


@pytest.mark.parametrize("answer", [b"<html>proxy</html>", b"", FRESH[:100], b'{"items": [{"metadata": "\xff"}]}', b'{"items": 3'])
def test_what_is_no_json_is_temporary(answer: bytes) -> None:
    with pytest.raises(Garbled) as caught:
        kube.decoded(ASKED, answer, Page[Conditioned])
    assert str(caught.value).startswith(f"{ASKED}: the answer is no JSON")
    assert caught.value.exit_code == ExitCode.TEMPORARY
