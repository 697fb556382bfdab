"""Pipeline bringup: bare OS on N hosts → an accepted GPU/HPC platform. Its stages, in order:

os_prep → rke2 → base_services → gpu_operator → network_operator → sharing → gang → slurm → validation
"""

from hera.workflows import WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import pipeline
from workflows.render.steps import Settings

KIND = "bringup"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return the whole bring-up as one WorkflowTemplate: every stage of the plan, each behind the judge of the one before."""
    return pipeline(KIND, plan, plan.stages, settings)
