"""Pipeline stack: `stack.yaml` and its lock → packages built in the order of their needs → tree → tests → published version."""

from hera.workflows import DAG, WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import FINISH, PipelineTasks
from workflows.render.steps import Settings

KIND = "stack"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return a stack build as one WorkflowTemplate. `>>` is explained in `workflows/bringup.py`.

    Stage `stack_build` is absent if the cache has all packages. Its packages are tasks of an inner DAG (`Step.graph`).
    """
    tasks = PipelineTasks(KIND, plan, settings)
    with WorkflowTemplate(entrypoint=KIND, on_exit=FINISH, **tasks.workflow_settings()) as workflow:
        tasks.add_templates()
        with DAG(name=FINISH, fail_fast=False):
            tasks.report() >> tasks.seal()
        with DAG(name=KIND):
            (
                tasks.open()
                >> tasks.stage("stack_build")
                >> tasks.stage("stack_tree")
                >> tasks.stage("stack_test")
                >> tasks.stage("stack_publish")
            )
    tasks.check_edges()
    return workflow
