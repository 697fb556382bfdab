"""Stage factory_pipelines: the released WorkflowTemplates of each project, and the schedules that start them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from steps.contract.canonical import digest
from steps.contract.objects import object_files
from steps.contract.task import Verb
from steps.stages.factory_projects.contract import BUILDER
from workflows.spec.pipelines.factory_spec import PipelineFile
from workflows.stages import rights
from workflows.stages.factory_projects import priority_class
from workflows.stages.factory_site import MANAGER, FactorySite, control_step, judge, metadata
from workflows.stages.stage import Change, Object, Rule, Stage, Step, task

ID: Final = "factory_pipelines"
CONTROL: Final = f"{ID}/control"
DEADLINE = 300
TEMPLATE, CONFIG_MAP = "WorkflowTemplate", "ConfigMap"
KINDS = (TEMPLATE, CONFIG_MAP)
"""Kinds of objects that a pipeline file may hold."""
FILE = "pipelines.json"
"""Name of the file of all objects beside the tasks: templates do not fit into a task file."""
KEPT_WORKFLOWS = 14
"""Workflows of a schedule that are kept, succeeded and failed each: two weeks of a nightly schedule."""
_API = "argoproj.io/v1alpha1"


def build(site: FactorySite) -> Stage | None:
    """Return stage factory_pipelines, or None if the spec releases no pipeline."""
    if not site.factory.pipelines:
        return None
    objects = released_objects(site)
    file = object_files.file_of(FILE, object_files.encode(objects))
    projects = sorted({entry.project for entry in site.factory.pipelines})
    expectations: Object = {"templates": _digests(objects), "schedules": list(_wanted_schedules(objects))}
    apply = Step(
        task=task(
            ID,
            "apply",
            Verb.APPLY,
            deadline=300,
            arguments={
                "file": msgspec.to_builtins(file),
                "gate": CONTROL,
                "gate_expectations": expectations,
            },
        ),
        rules=(*_rules(projects, ("get", "list", "create", "patch")), *rights.CLAIM),
    )
    control = control_step(
        ID, DEADLINE, expectations, _rules(projects, ("list",)), templates=expectations["templates"], namespaces=projects
    )
    templates = [f"{entry['metadata']['namespace']}/{entry['metadata']['name']}" for entry in objects if entry["kind"] == TEMPLATE]
    return Stage(
        id=ID,
        title="Pipelines",
        steps=(apply, control, judge(site, ID, {"control": CONTROL})),
        gates=(CONTROL,),
        changes=(Change(what="install released templates and schedules", where=", ".join(templates)),),
        rollback="install the templates of the release before; Workflows that run keep theirs",
    )


def released_objects(site: FactorySite) -> list[Object]:
    """Return all objects of the pipelines as they are installed: in their project, with its priority and its account."""
    objects = [entry for pipeline in site.factory.pipelines for entry in _installed(pipeline, site.pipelines[pipeline.file])]
    return [
        *objects,
        *(cron for pipeline in site.factory.pipelines for cron in _schedules(pipeline, site.pipelines[pipeline.file])),
    ]


def _installed(pipeline: PipelineFile, objects: tuple[Object, ...]) -> Iterator[Object]:
    for entry in objects:
        meta = entry["metadata"]
        own = {**meta, "namespace": pipeline.project, "labels": {**meta.get("labels", {}), **MANAGER}}
        changed: Object = {**entry, "metadata": own}
        if entry["kind"] == TEMPLATE:
            defaults = {"serviceAccountName": BUILDER}
            changed["spec"] = {**defaults, **entry["spec"], "podPriorityClassName": priority_class(pipeline.project)}
        yield changed


def _schedules(pipeline: PipelineFile, objects: tuple[Object, ...]) -> Iterator[Object]:
    """Yield the CronWorkflow of a pipeline, if it has a schedule."""
    schedule = pipeline.schedule
    if schedule is None:
        return
    template = pipeline.template or next(entry["metadata"]["name"] for entry in objects if entry["kind"] == TEMPLATE)
    spec: Object = {
        "schedules": list(schedule.cron),
        "timezone": schedule.timezone,
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": int(schedule.starting_deadline.total_seconds()),
        "successfulJobsHistoryLimit": KEPT_WORKFLOWS,
        "failedJobsHistoryLimit": KEPT_WORKFLOWS,
        "workflowSpec": {"workflowTemplateRef": {"name": template}},
        **({"suspend": True} if schedule.suspend else {}),
    }
    yield {
        "apiVersion": _API,
        "kind": "CronWorkflow",
        "metadata": metadata(template[:48].rstrip("-."), pipeline.project),
        "spec": spec,
    }


def _digests(objects: list[Object]) -> Mapping[str, str]:
    return {
        f"{entry['metadata']['namespace']}/{entry['metadata']['name']}": digest(entry["spec"])
        for entry in objects
        if entry["kind"] == TEMPLATE
    }


def _wanted_schedules(objects: list[Object]) -> Iterator[Object]:
    for entry in objects:
        if entry["kind"] == "CronWorkflow":
            meta, spec = entry["metadata"], entry["spec"]
            template = spec["workflowSpec"]["workflowTemplateRef"]["name"]
            yield {"name": f"{meta['namespace']}/{meta['name']}", "cron": spec["schedules"], "template": template}


def _rules(projects: list[str], verbs: tuple[str, ...]) -> tuple[Rule, ...]:
    space = tuple(projects)
    return (
        Rule(groups=("argoproj.io",), resources=("workflowtemplates", "cronworkflows"), verbs=verbs, namespaces=space),
        *((Rule(groups=("",), resources=("configmaps",), verbs=verbs, namespaces=space),) if "create" in verbs else ()),
        *rights.DIAGNOSE,
    )
