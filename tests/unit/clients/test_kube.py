"""What the API answers: nulls of Go's empty lists are as good as absent, and nothing else is forgiven."""

import msgspec
import pytest

from steps.clients import kube
from steps.clients.kube import Page
from steps.probes.workloads import Conditioned

FRESH = b"""{"apiVersion": "v1", "kind": "List", "metadata": {"continue": null}, "items": [{
  "metadata": {"name": "queues.scheduling.volcano.sh"},
  "spec": {"group": "scheduling.volcano.sh", "names": {"plural": "queues"}, "versions": [{"name": "v1beta1", "served": true}]},
  "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}}]}"""
"""A CRD a moment after it was created, as a real API server lists it."""


def test_a_fresh_definition_is_read() -> None:
    (one,) = kube.decoded(FRESH, Page[Conditioned]).items
    assert one.status.conditions == ()


def test_what_has_another_shape_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        kube.decoded(b'{"status": {"conditions": "many"}, "metadata": null}', Conditioned)
