"""Stage factory_argo: Argo Workflows with a factory's settings, proven by a Workflow of two steps and by one to be refused."""

from __future__ import annotations

from typing import Final

from steps.contract.task import Verb
from steps.stages.factory_argo.contract import POD_GC, REQUEUE, WORKERS
from workflows.spec.pipelines.factory_spec import FactorySpec
from workflows.stages import manifest_objects, rights
from workflows.stages.factory_site import (
    ARGO_CRDS,
    ARGO_SPACE,
    POD_GC_STRATEGY,
    FactorySite,
    control_step,
    duration,
    judge,
    namespace,
)
from workflows.stages.stage import Object, Rule, Stage, Step, task

ID: Final = "factory_argo"
ARGO: Final = "argo_workflows"
CONTROL, FUNCTIONAL = f"{ID}/control", f"{ID}/functional"
CHECK, INLINE = "workflow", "workflow-inline"
MARGIN_SECONDS, CHECK_SECONDS = 300, 600
CONFIG_MAP = "argo-workflows-workflow-controller-configmap"
_GROUP = "argoproj.io"
_SPACE = (rights.CHECK_NAMESPACE,)


def build(site: FactorySite) -> Stage:
    """Return stage factory_argo."""
    chosen = tuple(release for release in site.releases.values() if release.id == ARGO)
    release = chosen[0]
    expectations: Object = {
        "releases": [manifest_objects.expected_release(site, release)],
        "crds": list(ARGO_CRDS),
        "settings": _settings(site.factory),
        "version": site.factory.argo.version,
    }
    arguments: Object = {
        "namespaces": [ARGO_SPACE],
        "releases": expectations["releases"],
        "crds": expectations["crds"],
    }
    reads = (*rights.gate_rules(site, chosen), *_READS)
    apply = Step(
        task=task(
            ID,
            "apply",
            Verb.APPLY,
            deadline=300,
            arguments={
                "objects": [namespace(ARGO_SPACE), manifest_objects.helm_chart(release)],
                "gate": CONTROL,
                "gate_expectations": expectations,
            },
        ),
        rules=(*rights.release_rules(site, chosen), *_READS),
    )
    control = control_step(ID, release.timeout_seconds + MARGIN_SECONDS, expectations, reads, **arguments)
    return Stage(
        id=ID,
        title="Argo Workflows",
        steps=(apply, control, _functional(site), judge(site, ID, {"control": CONTROL, "functional": FUNCTIONAL})),
        gates=(CONTROL, FUNCTIONAL),
        changes=manifest_objects.installs(chosen),
        rollback=manifest_objects.rollback(chosen),
        releases=(release.id,),
    )


_READS = (
    rights.CRDS,
    Rule(groups=("",), resources=("configmaps",), verbs=("get",), namespaces=(ARGO_SPACE,)),
    Rule(groups=("apps",), resources=("deployments",), verbs=("get",), namespaces=(ARGO_SPACE,)),
)


def _settings(factory: FactorySpec) -> dict[str, str]:
    """Return the settings of the controller as they stand in its ConfigMap and in its Deployment.

    A person may edit both behind the chart's back; the release still has the planned values then.
    """
    argo = factory.argo
    return {
        "templateReferencing": "Strict",
        "parallelism": str(argo.parallelism),
        "namespaceParallelism": str(argo.project_parallelism),
        "limit": str(argo.rate_limit.limit),
        "burst": str(argo.rate_limit.burst),
        "podGCDeleteDelayDuration": duration(argo.pod_gc_delay),
        POD_GC: POD_GC_STRATEGY,
        REQUEUE: duration(argo.requeue),
        WORKERS: str(argo.workers),
    }


def _functional(site: FactorySite) -> Step:
    """Return the task that submits the two Workflows of the check and waits for their ends."""
    kinds = ("workflowtemplates", "workflows")
    return manifest_objects.check_step(
        ID,
        FUNCTIONAL,
        CHECK,
        [*_account(), _template(site.factory.check_image), *_workflows()],
        deadline=CHECK_SECONDS + 60,
        expectations={},
        waits_for=("control",),
        passed=(),
        rules=(
            Rule(groups=(_GROUP,), resources=kinds, verbs=("get", "create", "delete"), namespaces=_SPACE),
            Rule(groups=("",), resources=("serviceaccounts",), verbs=("get", "create", "patch"), namespaces=_SPACE),
            Rule(
                groups=("rbac.authorization.k8s.io",),
                resources=("roles", "rolebindings"),
                verbs=("get", "create", "delete"),
                namespaces=_SPACE,
            ),
            # who gives a right must have it
            Rule(groups=(_GROUP,), resources=("workflowtaskresults",), verbs=("create", "patch"), namespaces=_SPACE),
        ),
        select="all",
        namespaces=[ARGO_SPACE],
    )


def _account() -> list[Object]:
    """Return the account of the check's pods, with the only right that Argo's executor needs: to report results."""
    group = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "Role",
        "metadata": manifest_objects.check_metadata(ID, CHECK),
        "rules": [{"apiGroups": [_GROUP], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}],
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": manifest_objects.check_metadata(ID, CHECK),
        "roleRef": {"apiGroup": group, "kind": "Role", "name": CHECK},
        "subjects": [{"kind": "ServiceAccount", "name": CHECK, "namespace": rights.CHECK_NAMESPACE}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": manifest_objects.check_metadata(ID, CHECK)}
    return [account, role, binding]


def _template(image: str) -> Object:
    """Return a WorkflowTemplate of two steps: the first one outputs the Workflow's uid, which the second one outputs as answer."""
    first = _container("ask", image, "{{workflow.uid}}")
    second = _container("answer", image, "{{inputs.parameters.question}}") | {"inputs": {"parameters": [{"name": "question"}]}}
    passed_on = "{{steps.ask.outputs.parameters.value}}"
    steps: Object = {
        "name": "two-steps",
        "steps": [
            [{"name": "ask", "template": "ask"}],
            [
                {
                    "name": "answer",
                    "template": "answer",
                    "arguments": {"parameters": [{"name": "question", "value": passed_on}]},
                }
            ],
        ],
        "outputs": {"parameters": [{"name": "answer", "valueFrom": {"parameter": "{{steps.answer.outputs.parameters.value}}"}}]},
    }
    return {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": "WorkflowTemplate",
        "metadata": manifest_objects.check_metadata(ID, CHECK),
        "spec": _spec() | {"entrypoint": "two-steps", "templates": [steps, first, second]},
    }


def _spec() -> Object:
    return {
        "serviceAccountName": CHECK,
        "podMetadata": {"labels": manifest_objects.check_labels(ID, CHECK)},
        "activeDeadlineSeconds": CHECK_SECONDS,
    }


def _container(name: str, image: str, value: str) -> Object:
    """Return a template whose container writes its environment variable VALUE to the file that is its output."""
    environment = [{"name": "VALUE", "value": value}]
    return {
        "name": name,
        "container": {"image": image, "command": ["sh", "-c", 'printf %s "$VALUE" > /tmp/value'], "env": environment},
        "outputs": {"parameters": [{"name": "value", "valueFrom": {"path": "/tmp/value"}}]},
    }


def _workflows() -> list[Object]:
    """Return the Workflow that refers to the template, and one with a template of its own, which the controller must refuse."""
    inline = {"name": "refused", "suspend": {"duration": "5"}}
    kind = {"apiVersion": f"{_GROUP}/v1alpha1", "kind": "Workflow"}
    meta = manifest_objects.check_metadata(ID, CHECK)
    return [
        kind | {"metadata": meta, "spec": {"workflowTemplateRef": {"name": CHECK}}},
        kind | {"metadata": {**meta, "name": INLINE}, "spec": {"entrypoint": "refused", "templates": [inline]}},
    ]
