"""Reader of Argo CD Applications, on objects as a real Argo CD writes them (shortened)."""

from typing import Any

import msgspec
import pytest

from steps.contract.objects.charts import Application
from steps.stages.shared import probe_applications

CHART = {"repoURL": "https://charts.example.org", "chart": "cert-manager", "targetRevision": "v1.20.2"}
VALUES = {"repoURL": "https://git.example.org/apps.git", "targetRevision": "v1.4.0", "ref": "values"}
MOVED = {**VALUES, "targetRevision": "v1.5.0"}
LOOKED = 1795258800.0


def seen(status: dict[str, Any]) -> Application:
    meta = {"name": "cert-manager", "creationTimestamp": "2026-11-21T10:00:00Z"}
    raw = {"metadata": meta, "spec": {"sources": [CHART, VALUES]}, "status": status}
    return probe_applications.application(msgspec.json.decode(msgspec.json.encode(raw), type=probe_applications.RawApplication))


def synced(resource: dict[str, str]) -> dict[str, Any]:
    return {"operationState": {"phase": "Failed", "syncResult": {"resources": [resource]}}}


@pytest.mark.parametrize(
    ("compared", "when"),
    [
        pytest.param([CHART, VALUES], LOOKED, id="of these sources"),
        pytest.param([CHART, MOVED], 0.0, id="of other sources"),
    ],
)
def test_a_comparison_counts_only_for_the_sources_that_it_is_about(compared: list[dict[str, str]], when: float) -> None:
    found = seen({"reconciledAt": "2026-11-21T11:00:00Z", "sync": {"status": "Synced", "comparedTo": {"sources": compared}}})
    assert found.reconciled == when


def test_a_refused_spec_was_looked_at_though_nothing_was_compared() -> None:
    refusal = {"type": "InvalidSpecError", "message": "is not permitted in project", "lastTransitionTime": "2026-11-21T11:00:00Z"}
    empty = {"source": {"repoURL": ""}, "destination": {}}
    assert seen({"conditions": [refusal], "sync": {"status": "Unknown", "comparedTo": empty}}).reconciled == LOOKED


def test_every_applied_object_has_a_hook_phase_but_only_a_hook_has_a_type() -> None:
    plain = {"kind": "Deployment", "name": "web", "status": "SyncFailed", "hookPhase": "Failed", "message": "field is immutable"}
    assert [one.hook_phase for one in seen(synced(plain)).failures] == [""]
    assert [one.hook_phase for one in seen(synced({**plain, "hookType": "PreSync"})).failures] == ["Failed"]


@pytest.mark.parametrize(("place", "where"), [({"server": "https://a:6443"}, "https://a:6443"), ({"name": "staging"}, "staging")])
def test_what_it_brings_from_where_to_where(place: dict[str, str], where: str) -> None:
    spec = {"project": "platform", "destination": {"namespace": "cert-manager", **place}, "sources": [VALUES, CHART]}
    found = probe_applications.application(msgspec.convert({"spec": spec}, probe_applications.RawApplication))
    assert (found.project, found.server, found.namespace) == ("platform", where, "cert-manager")
    assert (found.chart_repo, found.chart, found.version) == ("https://charts.example.org", "cert-manager", "v1.20.2")


def test_a_message_is_kept_to_its_end_where_the_cause_stands() -> None:
    said = "helm template " + "x" * 900 + ": template: cert-manager/templates/a.yaml: nil pointer"
    assert seen({"conditions": [{"type": "ComparisonError", "message": said}]}).conditions[0].message == said


@pytest.mark.parametrize(
    ("resources", "unhealthy"),
    [
        ([{"group": "apps", "kind": "DaemonSet", "name": "a"}, {"kind": "ConfigMap", "name": "b"}], None),
        ([{"group": "apps", "kind": "DaemonSet", "name": "a", "health": {"status": "Healthy"}}], []),
        (
            [
                {"group": "apps", "kind": "DaemonSet", "name": "a", "health": {"status": "Progressing"}},
                {"kind": "Service", "name": "b", "health": {}},
                {"kind": "ConfigMap", "name": "c"},
            ],
            [("apps/DaemonSet", "a", "Progressing"), ("Service", "b", "")],
        ),
    ],
)
def test_what_is_not_healthy_is_named_where_argo_cd_keeps_it(resources: list[Any], unhealthy: list[Any] | None) -> None:
    found = seen({"resources": resources}).unhealthy
    assert (None if found is None else [(one.kind, one.name, one.health) for one in found]) == unhealthy


def test_children_of_a_root_are_the_applications_among_its_resources() -> None:
    resources = [{"kind": "Application", "name": "kueue"}, {"kind": "ConfigMap", "name": "other"}]
    assert seen({"resources": resources}).children == ("kueue",)
