"""Pipeline image: node-image recipe → a published image that is known to boot. This version builds nothing:

the stages (lock, layers, assemble, test, boot, publish) are not there yet, so there is nothing between the two ends.
"""

from hera.workflows import WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import pipeline
from workflows.render.steps import Settings

KIND = "image"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """The frame of an image build: a run that records that it built nothing."""
    return pipeline(KIND, plan, (), settings)
