"""Pipeline stack: `spack.yaml` → a tested software stack.

This version opens, reports and seals a run, and builds nothing: the stages (lock, build, view, test, promote) do not exist yet.
"""

from hera.workflows import WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import pipeline
from workflows.render.steps import Settings

KIND = "stack"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return the frame of a stack build: a run that records that it built nothing."""
    return pipeline(KIND, plan, (), settings)
