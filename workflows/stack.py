"""Pipeline stack: `spack.yaml` → a tested software stack.

This version opens, reports and seals a run, and builds nothing: the stages (lock, build, view, test, promote) do not exist yet.
"""

from hera.workflows import DAG, WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import FINISH, PipelineTasks
from workflows.render.steps import Settings

KIND = "stack"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return the frame of a stack build: a run that records that it built nothing."""
    tasks = PipelineTasks(KIND, plan, settings, only=())
    with WorkflowTemplate(entrypoint=KIND, on_exit=FINISH, **tasks.workflow_settings()) as workflow:
        tasks.add_templates()
        with DAG(name=FINISH, fail_fast=False):
            tasks.report() >> tasks.seal()
        with DAG(name=KIND):
            tasks.open()
    tasks.check_edges()
    return workflow
