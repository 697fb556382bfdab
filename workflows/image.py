"""Pipeline image: node-image recipe → a published image that is known to boot."""

from hera.workflows import DAG, WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import FINISH, PipelineTasks
from workflows.render.steps import Settings

KIND = "image"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return an image build as one WorkflowTemplate. `>>` is explained in `workflows/bringup.py`.

    Stage `image_status` reads what is published. The first stage after it has the condition (`when`) that this image is not
    published yet; otherwise Argo omits that stage and all later ones.
    """
    tasks = PipelineTasks(KIND, plan, settings)
    with WorkflowTemplate(entrypoint=KIND, on_exit=FINISH, **tasks.workflow_settings()) as workflow:
        tasks.add_templates()
        with DAG(name=FINISH, fail_fast=False):
            tasks.report() >> tasks.seal()
        with DAG(name=KIND):
            (
                tasks.open()
                >> tasks.stage("image_status")  # absent if the plan builds whatever is published
                >> tasks.stage("image_lock")
                >> tasks.stage("image_layers")
                >> tasks.stage("image_assemble")
                >> tasks.stage("image_sandbox")
                >> tasks.stage("image_boot")
                >> tasks.stage("image_publish")
            )
    tasks.check_edges()
    return workflow
