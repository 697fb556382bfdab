"""Pipeline factory: bare OS on a few hosts → a disposable Kubernetes that builds: registry, Argo Workflows, projects, pipelines."""

from hera.workflows import DAG, WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import FINISH, PipelineTasks
from workflows.render.steps import Settings

KIND = "factory"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return the build of a factory as one WorkflowTemplate. `>>` is explained in `workflows/bringup.py`."""
    tasks = PipelineTasks(KIND, plan, settings)
    with WorkflowTemplate(entrypoint=KIND, on_exit=FINISH, **tasks.workflow_settings()) as workflow:
        tasks.add_templates()
        with DAG(name=FINISH, fail_fast=False):
            tasks.report() >> tasks.seal()
        with DAG(name=KIND):
            (
                tasks.open()
                >> tasks.stage("os_prep")
                >> tasks.stage("rke2")
                >> tasks.stage("base_services")
                >> tasks.stage("factory_storage")  # absent if the spec has no shared folder
                >> tasks.stage("factory_registry")
                >> tasks.stage("factory_projects")  # Argo's chart makes Roles in the namespaces of projects
                >> tasks.stage("factory_argo")
                >> tasks.stage("factory_pipelines")  # absent if the spec releases none
            )
    tasks.check_edges()
    return workflow
