"""Schedules and event bindings that start runs by the plan's template: one at a time, accepted by the linter, with few rights."""

from typing import Any

import pytest

from workflows import bringup, examples
from workflows.app.specs.manifests import PIPELINES, rendered
from workflows.plan import diff, show
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render import starts, unknown_fields
from workflows.render.bundle import Bundle, render
from workflows.render.grammar.findings import refused
from workflows.render.grammar.lint import lint
from workflows.render.steps import Settings
from workflows.spec import load

TEXT = examples.path("three-hosts").read_text()
SCHEDULE = 'schedule: {cron: "0 2 * * 6", timezone: Europe/Berlin}\n'
EVENTS = "events: [{name: merged, selector: 'discriminator == \"x\"'}, {name: nightly, selector: payload.nightly}]\n"


def plan(sections: str = SCHEDULE + EVENTS, **narrow: Any) -> Plan:
    return compile_plan(load(TEXT + sections), **narrow)


def bundle(sections: str = SCHEDULE + EVENTS, **narrow: Any) -> Bundle:
    return rendered(plan(sections, **narrow), bringup.build, Settings(namespace="hall-b"))


def kinds(made: Bundle) -> list[str]:
    return [one["kind"] for one in made.starts or ()]


def test_each_section_gives_its_objects_and_none_gives_no_file() -> None:
    account = ["ServiceAccount", "Secret", "Role", "RoleBinding"]
    assert kinds(bundle(SCHEDULE)) == ["CronWorkflow"]
    assert kinds(bundle(EVENTS)) == [*account, "WorkflowEventBinding", "WorkflowEventBinding"]
    assert kinds(bundle()) == [*account, "CronWorkflow", "WorkflowEventBinding", "WorkflowEventBinding"]
    assert bundle("").starts == ()
    assert "starts.yaml" not in bundle("").files()
    assert bundle().files() == bundle().files()


def test_a_narrowed_plan_leaves_them_alone() -> None:
    """Else `--only os_prep` by hand would make every later run of the schedule one of os_prep alone."""
    for narrow in ({"only": ("os_prep",)}, {"until": "os_prep"}):
        made = bundle(**narrow)
        assert made.starts is None
        assert "starts.yaml" not in made.files()


@pytest.mark.parametrize("pipeline", sorted(PIPELINES.keys() - {"image", "stack", "slurm"}))  # which run no plan of a cluster
def test_argo_knows_every_field_and_the_linter_takes_what_they_submit(pipeline: str) -> None:
    made = render(plan(), PIPELINES[pipeline])
    name = made.template["metadata"]["name"]
    submitted = [starts.workflow(one) for one in made.starts or ()]
    assert sum(one is not None for one in submitted) == 3
    assert not [field for one in made.starts or () for field in unknown_fields.unknown_fields(one)]
    for one in filter(None, submitted):
        assert refused(lint(one, {name: made.template})) == ()
        assert one["spec"]["workflowTemplateRef"] == made.workflow["spec"]["workflowTemplateRef"]


def test_a_schedule_never_runs_beside_itself_and_leaves_suspension_to_the_cluster() -> None:
    (cron,) = bundle(SCHEDULE).starts or ()
    assert cron["metadata"]["namespace"] == "hall-b"
    assert {key: cron["spec"][key] for key in ("schedules", "timezone", "concurrencyPolicy", "startingDeadlineSeconds")} == {
        "schedules": ["0 2 * * 6"],
        "timezone": "Europe/Berlin",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 600,
    }
    assert [cron["spec"][f"{how}JobsHistoryLimit"] for how in ("successful", "failed")] == [14, 14]
    assert "suspend" not in cron["spec"]
    (kept,) = bundle(SCHEDULE.replace("}", ", suspend: true}")).starts or ()
    assert kept["spec"]["suspend"] is True


def test_names_fit_and_stay_when_the_plan_changes() -> None:
    longest = "c" * 40
    text = TEXT.replace("name: three-hosts", f"name: {longest}")
    assert f"name: {longest}" in text
    made, other = (
        render(compile_plan(load(changed + SCHEDULE)), bringup.build)
        for changed in (text, text.replace("revision: ", "revision: x"))
    )
    (cron,), (later,) = made.starts or (), other.starts or ()
    assert cron["metadata"]["name"] == later["metadata"]["name"]
    assert len(cron["metadata"]["name"]) <= 52  # Argo's limit for a CronWorkflow


def test_an_event_may_create_workflows_and_brings_nothing_into_the_run() -> None:
    made = bundle(EVENTS)
    (role,) = [one for one in made.starts or () if one["kind"] == "Role"]
    writes = [(rule["resources"], rule["verbs"]) for rule in role["rules"] if set(rule["verbs"]) - {"get", "list"}]
    assert writes == [(["workflows"], ["create"])]
    assert "uses every account and Secret of this namespace" in role["metadata"]["annotations"]["bringup/note"]
    for binding in [one for one in made.starts or () if one["kind"] == "WorkflowEventBinding"]:
        assert binding["spec"]["submit"]["arguments"] == {"parameters": [{"name": "reuse", "value": "none"}]}
        told = binding["spec"]["submit"]["metadata"]
        assert all(text.startswith('"') and text.endswith('"') for part in told.values() for text in part.values())


def test_when_a_run_starts_is_no_part_of_the_plan_but_a_difference() -> None:
    without, one, other = plan(""), plan(), plan(SCHEDULE.replace("Berlin", "Oslo"))
    assert without.digest == one.digest == other.digest
    assert diff.differences(one, one) == ()
    assert diff.differences(one, other)[0] == "schedule.timezone: Europe/Berlin → Europe/Oslo"
    assert any("0 2 * * 6" in line for line in diff.differences(without, one))
    assert bundle("").config_maps == bundle().config_maps  # immutable, and named by the digest
    assert show.starts(one)["schedule"]["cron"] == ["0 2 * * 6"]
    assert show.starts(without) == {"schedule": None, "events": []}
    assert show.outline(one)[-3] == "├─ Argo starts it by itself: 0 2 * * 6 (Europe/Berlin)"
