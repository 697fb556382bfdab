"""Titles and descriptions that Argo's UI shows for a WorkflowTemplate, its runs and its templates.

The UI reads them as Markdown from two annotations
(https://argo-workflows.readthedocs.io/en/latest/title-and-description/). They are made of the plan's own titles.
"""

from typing import Any

from steps.contract.plain_text import count
from steps.contract.runs import approval
from workflows.plan.model import Plan
from workflows.render import graph_tasks, names
from workflows.stages.stage import Stage

Object = dict[str, Any]
TITLE, DESCRIPTION = "workflows.argoproj.io/title", "workflows.argoproj.io/description"


def run_annotations(kind: str, plan: Plan) -> dict[str, str]:
    """Return the title and description of a plan's runs: pipeline, cluster, owner, number of hosts, and stages in order."""
    stages = ", ".join(stage.title for stage in plan.stages)
    return {
        TITLE: f"{kind} {plan.name}",
        DESCRIPTION: f"{count(len(plan.stages), 'stage')} of {plan.name} (owner {plan.owner}): {stages}",
    }


def describe_templates(template: Object, plan: Plan) -> None:
    """Add title and description to every template of a WorkflowTemplate that belongs to a task or stage of the plan."""
    described = _descriptions(plan)
    for entry in template["spec"]["templates"]:
        if entry["name"] in described:
            title, description = described[entry["name"]]
            entry["annotations"] = {TITLE: title, DESCRIPTION: description}


def _descriptions(plan: Plan) -> dict[str, tuple[str, str]]:
    """Return template name → title and description."""
    result = {
        names.template("run", "open"): (
            "Open the run",
            "checks the plan, identifies the hosts, cuts them into shards",
        ),
        names.template("run", "report"): ("Report", "writes the acceptance report from the evidence"),
        names.template("run", "seal"): ("Seal", "lists the digests of all evidence and releases the target"),
    }
    previous = "the opening of the run"
    for number, stage in enumerate(plan.stages, 1):
        result |= _of_stage(stage, f"{number} of {len(plan.stages)}", previous)
        previous = stage.title
    return result


def _of_stage(stage: Stage, place: str, previous: str) -> dict[str, tuple[str, str]]:
    dashed = names.dashed(stage.id)
    result = {dashed: (f"{stage.title} (stage {place})", f"gates: {', '.join(stage.gates) or 'none of its own'}")}
    for step in stage.steps:
        container = names.template(stage.id, step.name)
        result[container] = (f"{stage.title}: {step.name}", f"stage {place}")
        if step.graph:
            title, size = f"{stage.title}: {step.name}, all", count(len(step.graph), "task")
            result[graph_tasks.graph_template(container)] = (title, f"stage {place}; {size} in the order of their dependencies")
    if stage.approval is not None:
        wait = f"`bringup approve`, or answer here with the digest of the evidence of {previous}"
        result[f"{approval.NODE_PREFIX}{dashed}"] = (f"Approval before {stage.title}", wait)
        result[names.template(stage.id, approval.ANNOUNCE)] = (f"{stage.title}: announce", "tells the approvers")
        result[names.template(stage.id, approval.CONFIRM)] = (
            f"{stage.title}: confirm",
            "checks the answer",
        )
    return result
