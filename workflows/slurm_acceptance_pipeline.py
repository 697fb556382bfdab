"""Pipeline slurm: the acceptance of a Slurm cluster from a login node of it, by the embedded engine."""

from hera.workflows import DAG, WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import FINISH, PipelineTasks
from workflows.render.steps import Settings

KIND = "slurm"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return an acceptance as one WorkflowTemplate. `>>` is explained in `workflows/bringup.py`."""
    tasks = PipelineTasks(KIND, plan, settings)
    with WorkflowTemplate(entrypoint=KIND, on_exit=FINISH, **tasks.workflow_settings()) as workflow:
        tasks.add_templates()
        with DAG(name=FINISH, fail_fast=False):
            tasks.report() >> tasks.seal()
        with DAG(name=KIND):
            tasks.open() >> tasks.stage("slurm_acceptance")
    tasks.check_edges()
    return workflow
