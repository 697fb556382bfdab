"""A pipeline for plans of tests, whose stages are no stage of a shipped pipeline."""

from functools import reduce

from hera.workflows import DAG, WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import FINISH, PipelineTasks
from workflows.render.steps import Settings

KIND = "bringup"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return all stages of a plan in a chain, as a shipped pipeline spells them out."""
    tasks = PipelineTasks(KIND, plan, settings)
    with WorkflowTemplate(entrypoint=KIND, on_exit=FINISH, **tasks.workflow_settings()) as workflow:
        tasks.add_templates()
        with DAG(name=FINISH, fail_fast=False):
            tasks.report() >> tasks.seal()
        with DAG(name=KIND):
            reduce(lambda before, stage: before >> tasks.stage(stage.id), plan.stages, tasks.open())
    tasks.check_edges()
    return workflow
