"""Pipeline factory: bare OS on a few hosts → a disposable Kubernetes. Its stages, in order:

os_prep → rke2

Argo Workflows, a registry, storage and the scheduled rebuild are not in this version.
"""

from hera.workflows import WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import pipeline
from workflows.render.steps import Settings

KIND = "factory"
STAGES = ("os_prep", "rke2")


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return the part of a plan that builds a bare Kubernetes as a WorkflowTemplate."""
    return pipeline(KIND, plan, (stage for stage in plan.stages if stage.id in STAGES), settings)
