"""Gates of factory_argo: the controller has its settings, carries out a Workflow of two steps, and refuses inline templates."""

from collections.abc import Iterator

from steps.contract.objects.charts import ReleaseState
from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.factory_argo.contract import (
    REQUEUE,
    WORKERS,
    CheckWorkflow,
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
)
from steps.stages.shared import gate_charts, gate_checks
from steps.stages.shared.causes import RUNTIME_REASONS
from steps.stages.shared.finding import Finding, fail, unknown

CONTROL = "factory_argo/control"
FUNCTIONAL = "factory_argo/functional"
CONTROLLER, CONFIG_MAP = "argo-workflows-workflow-controller", "argo-workflows-workflow-controller-configmap"
_LOG = f"kubectl -n argo logs deployment/{CONTROLLER}"
ENDED = ("Succeeded", "Failed", "Error")
QUOTE = 300
"""Most characters of a Workflow's message in a sentence."""


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check the chart, the served kinds, the image of the controller, and the settings that people can change in the cluster."""
    finding = (
        gate_charts.problem(seen.releases, want.releases, None, None)
        or gate_charts.missing_crd(seen.crds, want.crds)
        or _version(seen.releases, want.version)
        or next(_settings(seen.settings, want.settings), None)
    )
    if finding is not None:
        return finding.verdict(CONTROL)
    return passed(CONTROL, f"Argo Workflows {want.version} is ready, and only installed templates run")


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that the answer went through both steps, and that the Workflow without a released template was refused."""
    finding = _two_steps(seen.workflow, seen.pods, want.pods) or _refused(seen.inline)
    if finding is not None:
        return finding.verdict(FUNCTIONAL)
    return passed(FUNCTIONAL, f"a Workflow of {want.pods} steps gave its answer, and one with a template of its own was refused")


def _version(releases: tuple[ReleaseState, ...], version: str) -> Finding | None:
    """Return the problem of the controller's image; a chart's default is the version that the chart was made for."""
    workloads = (workload for release in releases for workload in release.workloads)
    controller = next((workload for workload in workloads if workload.name == CONTROLLER), None)
    if controller is None:
        step = "kubectl -n argo get deployments"
        return unknown(FailureClass.DEPENDENCY, f"there is no Deployment {CONTROLLER}", "the controller", step)
    tag = controller.image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if tag == version:
        return None
    step = "see who changes the image: argo.version in the spec sets images.tag of the chart"
    return fail(FailureClass.COMPARISON, f"the controller's image is {controller.image or 'unknown'}", f"tag {version}", step)


def _settings(seen: dict[str, str] | None, want: dict[str, str]) -> Iterator[Finding]:
    if seen is None:
        step = "kubectl -n argo get configmaps; the chart makes it"
        yield unknown(FailureClass.DEPENDENCY, f"there is no ConfigMap {CONFIG_MAP}", "the controller's settings", step)
        return
    for key, value in want.items():
        if seen.get(key) != value:
            place = f"Deployment {CONTROLLER}" if key in (REQUEUE, WORKERS) else f"ConfigMap {CONFIG_MAP}"
            step = f"see who edits {place}; a new revision of the chart writes it again"
            yield fail(FailureClass.COMPARISON, f"setting {key} of the controller is {seen.get(key, 'not set')}", value, step)


def _two_steps(workflow: CheckWorkflow | None, pods: tuple[CheckPod, ...], count: int) -> Finding | None:
    expected = "a Workflow that succeeded"
    if workflow is None:
        return unknown(FailureClass.HEALTH, "the check's Workflow does not exist yet", expected, _LOG)
    if not workflow.phase:
        step = f"{_LOG}; a controller that holds no lease, or watches other namespaces, takes no Workflow"
        return unknown(FailureClass.RUNTIME, "the controller has not taken the check's Workflow", expected, step)
    if workflow.phase not in ENDED:
        return _waiting(workflow, pods)
    if workflow.phase != "Succeeded":
        seen = f"the check's Workflow is {workflow.phase}: {workflow.message[:QUOTE]}"
        return fail(FailureClass.RUNTIME, seen, expected, _LOG, final=True)
    if not workflow.uid or workflow.answer != workflow.uid or workflow.pods < count:
        seen = f"the Workflow succeeded with {workflow.pods} pods and the answer {workflow.answer[:60] or 'nothing'!r}"
        step = f"{_LOG}; results of pods travel as WorkflowTaskResults, which the account of the pods must be able to create"
        return fail(FailureClass.RUNTIME, seen, f"{count} pods and {workflow.uid!r}", step, final=True)
    return None


def _waiting(workflow: CheckWorkflow, pods: tuple[CheckPod, ...]) -> Finding:
    pod = next((pod for pod in pods if not pod.ended and gate_checks.why(pod).text), None)
    why = gate_checks.why(pod) if pod else None
    seen = f"the check's Workflow is {workflow.phase}" + (f"; pod {pod.name}: {why.text}" if pod and why else "")
    stuck = pod is not None and pod.reason in RUNTIME_REASONS
    make = fail if stuck else unknown
    return make(FailureClass.RUNTIME, seen, "a Workflow that succeeded", (why.next_step if why else "") or _LOG)


def _refused(inline: CheckWorkflow | None) -> Finding | None:
    expected = "it refused: only released templates run"
    if inline is None or not inline.uid or not inline.phase:
        return unknown(FailureClass.RUNTIME, "the Workflow with a template of its own is not judged yet", expected, _LOG)
    if inline.phase in ("Error", "Failed") and "workflowTemplateRef" in inline.message:
        return None
    seen = f"a Workflow that refers to no released template is {inline.phase} {inline.message[:QUOTE]}".rstrip()
    step = "see workflowRestrictions in the controller's ConfigMap, and if the controller was started since it was written"
    return fail(FailureClass.PERMISSION, seen, expected, step, final=True)
