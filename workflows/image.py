"""Pipeline image: node-image recipe → a published image that is known to boot. Its stages, in order:

image_standing → image_lock → image_layers → image_assemble → image_sandbox → image_boot → image_publish

The first stage checks whether this very image is published already; if so, the others are left out.
"""

from hera.workflows import WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import pipeline
from workflows.render.steps import Settings

KIND = "image"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return an image build as one WorkflowTemplate: every stage of the plan, each behind the judge of the one before."""
    return pipeline(KIND, plan, plan.stages, settings)
