"""Pipeline factory: bare OS on a few hosts → a disposable Kubernetes. Its stages, in order:

os_prep → rke2

What makes it a factory (Argo Workflows, a registry, storage; the rebuild on schedule) is not in this version.
"""

from hera.workflows import WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import pipeline
from workflows.render.steps import Settings

KIND = "factory"
STAGES = ("os_prep", "rke2")


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """The part of a plan that makes a bare Kubernetes."""
    return pipeline(KIND, plan, (stage for stage in plan.stages if stage.id in STAGES), settings)
