"""Pipeline factory: bare OS on a few hosts → a disposable Kubernetes.

Argo Workflows, a registry, storage and the scheduled rebuild are not in this version.
"""

from hera.workflows import DAG, WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import FINISH, PipelineTasks
from workflows.render.steps import Settings

KIND = "factory"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return the part of a bring-up's plan that builds a bare Kubernetes. `>>` is explained in `workflows/bringup.py`."""
    tasks = PipelineTasks(KIND, plan, settings, only=("os_prep", "rke2"))
    with WorkflowTemplate(entrypoint=KIND, on_exit=FINISH, **tasks.workflow_settings()) as workflow:
        tasks.add_templates()
        with DAG(name=FINISH, fail_fast=False):
            tasks.report() >> tasks.seal()
        with DAG(name=KIND):
            tasks.open() >> tasks.stage("os_prep") >> tasks.stage("rke2")
    tasks.check_edges()
    return workflow
