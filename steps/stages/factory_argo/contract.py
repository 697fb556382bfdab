"""Types of stage factory_argo: observations of Argo Workflows and of the check's Workflows, and the expectations of its gates."""

from msgspec import Struct

from steps.contract.objects.charts import Crd, Release, ReleaseState
from steps.contract.objects.checks import CheckPod

REQUEUE, WORKERS, POD_GC = "DEFAULT_REQUEUE_TIME", "workflow-workers", "podGC"
"""Settings that are no keys of the ConfigMap: a variable and an argument of the controller, and a default of Workflows."""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate factory_argo/control: the chart, the kinds that are served, and the controller's settings.

    `settings` are those of the controller's ConfigMap by their last key, with the variable and the argument of its Deployment;
    None if there is no such ConfigMap.
    """

    releases: tuple[ReleaseState, ...] = ()
    crds: tuple[Crd, ...] = ()
    settings: dict[str, str] | None = None


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate factory_argo/control: chart, served kinds, settings, and the version that is the image's tag."""

    releases: tuple[Release, ...] = ()
    crds: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    version: str = ""


class CheckWorkflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Workflow of the check: its uid, phase and message, the output `answer`, and how many of its pods have succeeded."""

    uid: str
    phase: str = ""
    message: str = ""
    answer: str = ""
    pods: int = 0


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate factory_argo/functional.

    `workflow` refers to a template of two steps, `inline` has a template of its own; `pods` are those of the check.
    """

    workflow: CheckWorkflow | None = None
    inline: CheckWorkflow | None = None
    pods: tuple[CheckPod, ...] = ()


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate factory_argo/functional: how many pods the Workflow of the check has."""

    pods: int = 2
