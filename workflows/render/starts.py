"""What starts runs without a person: a CronWorkflow for the schedule, a WorkflowEventBinding for each event, and their account.

They submit the plan's own WorkflowTemplate by reference, so that what they start is what `bringup run` starts. But a node image's
schedule starts a pod that reads the newest state from Git (`from_git`). Names come from the cluster, not from the plan, so
that a new revision replaces them. Facts: hera_argo §2.6.
"""

from typing import Any

import msgspec

from workflows.plan.model import Plan
from workflows.render import from_git, rbac, steps
from workflows.spec.image_schedule import ImageSchedule
from workflows.spec.schedule import Event, Schedule

Object = dict[str, Any]
API = "argoproj.io/v1alpha1"
KEPT = 14
"""Ended runs of a schedule whose Workflows stay, of those that succeeded and of those that did not: two weeks of a nightly one, at
1 MiB each at the most. Argo's defaults are 3 and 1; with a Workflow goes what `status` and `logs` tell of its run. Those of an
image only start runs; each owns its run and what was installed for that alone, which go with it."""
STARTS = "bringup/starts"
"""Label of a Workflow that only starts a run: the pipeline of that."""
EVENT_RIGHTS: rbac.Rights = {
    ("argoproj.io", "workflows"): frozenset({"create"}),
    ("argoproj.io", "workfloweventbindings"): frozenset({"list"}),
    ("argoproj.io", "workflowtemplates"): frozenset({"get"}),
}
"""Argo's server acts with the sender's own rights: it looks for the binding, reads the template, and creates the Workflow."""


def cron_name(kind: str, cluster: str) -> str:
    """Name of a cluster's CronWorkflow: at most 48 characters, 52 are allowed since runs get a time behind it."""
    return f"{kind}-{cluster}"


def account_name(cluster: str) -> str:
    """The account with whose token events are sent."""
    return f"bringup-events-{cluster}"


def starts(plan: Plan, template: Object, settings: steps.Settings) -> tuple[Object, ...] | None:
    """The objects for a plan and its WorkflowTemplate, accounts first; None where the plan is narrowed and leaves them alone."""
    if plan.starts is None:
        return None
    found, schedule = _account(plan, template) if plan.starts.events else [], plan.starts.schedule
    if isinstance(schedule, ImageSchedule):
        found += [*from_git.account(plan.name, _labels(template), settings.namespace), _reading(plan, template, schedule, settings)]
    elif schedule is not None:
        found.append(_cron(plan, template, schedule))
    return (*found, *(_binding(plan, template, event) for event in plan.starts.events))


def workflow(manifest: Object) -> Object | None:
    """The Workflow that one of them makes, for the linter; None for what makes none."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "CronWorkflow":
        made = spec["workflowSpec"]
    elif manifest["kind"] == "WorkflowEventBinding":
        made = {part: spec["submit"][part] for part in ("workflowTemplateRef", "arguments")}
    else:
        return None
    return {"apiVersion": API, "kind": "Workflow", "metadata": {"generateName": f"{manifest['metadata']['name']}-"}, "spec": made}


def _labels(template: Object) -> dict[str, str]:
    labels: dict[str, str] = template["metadata"]["labels"]
    return dict(labels)


def _meta(name: str, template: Object) -> Object:
    return {"name": name, "namespace": template["metadata"]["namespace"], "labels": _labels(template)}


def _cron(plan: Plan, template: Object, schedule: Schedule) -> Object:
    annotations = dict(template["metadata"]["annotations"])
    started = {
        "workflowMetadata": {"labels": _labels(template), "annotations": dict(annotations)},
        "workflowSpec": _submitted(template),
    }
    return _cron_workflow(plan, template, schedule, started)


def _reading(plan: Plan, template: Object, schedule: ImageSchedule, settings: steps.Settings) -> Object:
    """What it starts is no run of the pipeline itself, and has another label: else it would supersede itself."""
    annotations = {key: value for key, value in template["metadata"]["annotations"].items() if key != "bringup/plan"}
    labels = _labels(template)
    started = {
        "workflowMetadata": {"labels": {STARTS: labels.pop("bringup/pipeline"), **labels}, "annotations": dict(annotations)},
        "workflowSpec": from_git.workflow_spec(plan, schedule.source, settings),
    }
    return _cron_workflow(plan, template, schedule, started)


def _cron_workflow(plan: Plan, template: Object, schedule: Schedule, started: Object) -> Object:
    """`suspend` is written only where the spec says so: elsewhere it belongs to who suspends the schedule on the cluster.

    It has no annotations of its own: at each tick Argo writes all of them back as it has read them, and would own one that an
    installation changed meanwhile (cron/operator.go, persistUpdate): the next installation then ends in a conflict.
    """
    kind = template["metadata"]["labels"]["bringup/pipeline"]
    spec: Object = {
        "schedules": list(schedule.cron),
        "timezone": schedule.timezone,
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": int(schedule.starting_deadline.total_seconds()),
        "successfulJobsHistoryLimit": KEPT,
        "failedJobsHistoryLimit": KEPT,
        **({"suspend": True} if schedule.suspend else {}),
    }
    return {
        "apiVersion": API,
        "kind": "CronWorkflow",
        "metadata": _meta(cron_name(kind, plan.name), template),
        "spec": {**spec, **started},
    }


def _binding(plan: Plan, template: Object, event: Event) -> Object:
    """Labels and annotations of what an event submits are expressions to Argo, hence the quotes; nothing of the event enters."""
    told = {"bringup/plan": plan.digest}
    metadata = {"labels": _quoted(_labels(template)), "annotations": _quoted(told)}
    return {
        "apiVersion": API,
        "kind": "WorkflowEventBinding",
        "metadata": _meta(f"bringup-{plan.name}.{event.name}", template),
        "spec": {"event": {"selector": event.selector}, "submit": {**_submitted(template), "metadata": metadata}},
    }


def _submitted(template: Object) -> Object:
    reuse = [{"name": "reuse", "value": "none"}]
    return {"workflowTemplateRef": {"name": template["metadata"]["name"]}, "arguments": {"parameters": reuse}}


def _quoted(values: dict[str, str]) -> dict[str, str]:
    return {key: msgspec.json.encode(value).decode() for key, value in values.items()}


def _account(plan: Plan, template: Object) -> list[Object]:
    """The events' account, its token where Argo's server looks for it, and its Role in home."""
    space = template["metadata"]["namespace"]
    account = rbac.account(account_name(plan.name), space)
    account["metadata"]["labels"] = _labels(template)
    return [account, rbac.token(account), *rbac.granted(account, space, EVENT_RIGHTS)]
