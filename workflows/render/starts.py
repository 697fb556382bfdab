"""Objects that start runs without a person: a CronWorkflow for the schedule, a WorkflowEventBinding for each event, accounts.

They submit the plan's own WorkflowTemplate by reference, so they start the same run as `bringup run`. The schedule of an image or
a stack instead starts a pod that reads the newest state from Git (`from_git`). Names come from the cluster, not from the plan, so
that a new revision replaces the objects. Facts: `steps/docs/facts/argo.md`, Argo Workflows: triggers.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from workflows.plan.model import Plan
from workflows.render import from_git, rbac, steps
from workflows.spec.pipelines.git_schedule import GitSchedule
from workflows.spec.sections.schedule import EventTrigger, Schedule

Object = dict[str, Any]
API = "argoproj.io/v1alpha1"
KEPT_WORKFLOWS = 14
"""Number of succeeded and number of failed Workflows that a schedule keeps: each two weeks of a nightly schedule.

A Workflow takes 1 MiB at most. Argo's defaults are 3 and 1. Once a Workflow is deleted, `status` and `logs` know nothing of its
run. A Workflow that reads Git owns the run that it started and the objects installed for it, which are deleted with it.
"""
STARTS = "bringup/starts"
"""Label of a Workflow that only starts a run; its value is the pipeline of that run."""
EVENT_RIGHTS: rbac.Rights = {
    ("argoproj.io", "workflows"): frozenset({"create"}),
    ("argoproj.io", "workfloweventbindings"): frozenset({"list"}),
    ("argoproj.io", "workflowtemplates"): frozenset({"get"}),
}
"""Rights of the account that sends events. Argo's server uses them to find the binding, read the template, create the Workflow."""


def cron_name(kind: str, cluster: str) -> str:
    """Return the name of a cluster's CronWorkflow, at most 48 characters long.

    Argo allows 52, because it appends a time to the names of runs.
    """
    return f"{kind}-{cluster}"


def account_name(cluster: str) -> str:
    """Return the name of the ServiceAccount whose token an event's sender uses."""
    return f"bringup-events-{cluster}"


def starts(plan: Plan, template: Object, settings: steps.Settings) -> tuple[Object, ...] | None:
    """Return the objects that start runs of a plan, accounts first; None for a narrowed plan, which must not replace them."""
    if plan.starts is None:
        return None
    objects, schedule = _account(plan, template) if plan.starts.events else [], plan.starts.schedule
    if isinstance(schedule, GitSchedule):
        objects += [
            *from_git.account(_kind(template), plan.name, _labels(template), settings.namespace),
            _git_template(plan, template, schedule, settings),
            _git_cron(plan, template, schedule),
        ]
    elif schedule is not None:
        marks = {"labels": _labels(template), "annotations": dict(template["metadata"]["annotations"])}
        started = {"workflowMetadata": marks, "workflowSpec": _submission(template)}
        objects.append(_cron_workflow(plan, template, schedule, started))
    return (*objects, *(_binding(plan, template, event) for event in plan.starts.events))


def starter_templates(objects: Iterable[Object]) -> list[Object]:
    """Return those of the objects that are templates of pods which read Git."""
    return [manifest for manifest in objects if manifest["kind"] == "WorkflowTemplate"]


def workflow(manifest: Object) -> Object | None:
    """Return the Workflow that a CronWorkflow or event binding would create, for the linter; None for other kinds."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "CronWorkflow":
        workflow_spec = spec["workflowSpec"]
    elif manifest["kind"] == "WorkflowEventBinding":
        workflow_spec = {part: spec["submit"][part] for part in ("workflowTemplateRef", "arguments")}
    else:
        return None
    return {
        "apiVersion": API,
        "kind": "Workflow",
        "metadata": {"generateName": f"{manifest['metadata']['name']}-"},
        "spec": workflow_spec,
    }


def _kind(template: Object) -> str:
    return str(template["metadata"]["labels"]["bringup/pipeline"])


def _labels(template: Object) -> dict[str, str]:
    labels: dict[str, str] = template["metadata"]["labels"]
    return dict(labels)


def _meta(name: str, template: Object) -> Object:
    return {"name": name, "namespace": template["metadata"]["namespace"], "labels": _labels(template)}


def _git_template(plan: Plan, template: Object, schedule: GitSchedule, settings: steps.Settings) -> Object:
    """Return the WorkflowTemplate of the pod that reads Git, beside its schedule.

    A controller that runs installed templates alone (`templateReferencing: Strict`), as that of a factory, refuses a CronWorkflow
    with a template of its own.
    """
    kind = _kind(template)
    return {
        "apiVersion": API,
        "kind": "WorkflowTemplate",
        "metadata": {**_meta(from_git.template_name(plan.name, kind), template), "labels": _starter_labels(template)},
        "spec": from_git.workflow_spec(kind, plan, schedule.source, settings),
    }


def _git_cron(plan: Plan, template: Object, schedule: GitSchedule) -> Object:
    """Return the CronWorkflow of a node image or a stack."""
    annotations = {key: value for key, value in template["metadata"]["annotations"].items() if key != "bringup/plan"}
    started = {
        "workflowMetadata": {"labels": _starter_labels(template), "annotations": annotations},
        "workflowSpec": {"workflowTemplateRef": {"name": from_git.template_name(plan.name, _kind(template))}},
    }
    return _cron_workflow(plan, template, schedule, started)


def _starter_labels(template: Object) -> dict[str, str]:
    """Return labels of Workflows that read Git: none of runs, because a run supersedes older Workflows with the label of runs."""
    labels = _labels(template)
    return {STARTS: labels.pop("bringup/pipeline"), **labels}


def _cron_workflow(plan: Plan, template: Object, schedule: Schedule, started: Object) -> Object:
    """Return the CronWorkflow of a schedule; `started` are the fields that describe the Workflows it creates.

    `suspend` is written only if the spec sets it; otherwise it belongs to whoever suspends the schedule on the cluster. The object
    has no annotations of its own: at each tick Argo writes back all that it has read (cron/operator.go, persistUpdate). It would
    then own an annotation that an installation changed meanwhile, and the next installation would end in a conflict.
    """
    spec: Object = {
        "schedules": list(schedule.cron),
        "timezone": schedule.timezone,
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": int(schedule.starting_deadline.total_seconds()),
        "successfulJobsHistoryLimit": KEPT_WORKFLOWS,
        "failedJobsHistoryLimit": KEPT_WORKFLOWS,
        **({"suspend": True} if schedule.suspend else {}),
    }
    return {
        "apiVersion": API,
        "kind": "CronWorkflow",
        "metadata": _meta(cron_name(_kind(template), plan.name), template),
        "spec": {**spec, **started},
    }


def _binding(plan: Plan, template: Object, event: EventTrigger) -> Object:
    """Return the WorkflowEventBinding of an event. The event starts the Workflow but puts no data into it.

    Labels and annotations are quoted, because Argo evaluates them as expressions.
    """
    annotations = {"bringup/plan": plan.digest}
    metadata = {"labels": _quoted(_labels(template)), "annotations": _quoted(annotations)}
    return {
        "apiVersion": API,
        "kind": "WorkflowEventBinding",
        "metadata": _meta(f"bringup-{plan.name}.{event.name}", template),
        "spec": {"event": {"selector": event.selector}, "submit": {**_submission(template), "metadata": metadata}},
    }


def _submission(template: Object) -> Object:
    reuse = [{"name": "reuse", "value": "none"}]
    return {"workflowTemplateRef": {"name": template["metadata"]["name"]}, "arguments": {"parameters": reuse}}


def _quoted(values: dict[str, str]) -> dict[str, str]:
    return {key: msgspec.json.encode(value).decode() for key, value in values.items()}


def _account(plan: Plan, template: Object) -> list[Object]:
    """Return the ServiceAccount for events, its token under the name by which Argo's server looks for it, and its Role."""
    space = template["metadata"]["namespace"]
    account = rbac.account(account_name(plan.name), space)
    account["metadata"]["labels"] = _labels(template)
    return [account, rbac.token(account), *rbac.role_and_binding(account, space, EVENT_RIGHTS)]
