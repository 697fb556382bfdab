"""Stage factory_argo: the simulated chart of Argo Workflows, and a controller that carries out Workflows of steps with containers.

The controller plays a part of Argo alone: templates of steps, pods, outputs read from files, and the restriction to released
templates. A pod's output is the value of its variable VALUE, as the containers of bringup's checks write it. Source:
https://github.com/argoproj/argo-workflows/blob/main/workflow/controller/operator.go
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

import yaml

from workflows.rehearsal.simulator.api.api_kinds import CONFIG_MAPS, DEPLOYMENTS, PODS, Obj, Ref, custom, ref
from workflows.rehearsal.simulator.charts.chart_installers import ChartRelease, chart, workload_spec
from workflows.rehearsal.simulator.charts.operators import has_ready_pod
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, Exit, blocked_by, check
from workflows.rehearsal.simulator.world import Changes, World

GROUP = "argoproj.io"
WORKFLOWS, TEMPLATES = custom(GROUP, "Workflow"), custom(GROUP, "WorkflowTemplate")
KINDS = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow", "WorkflowTaskResult")
CONTROLLER = "argo-workflows-workflow-controller"
CONFIG_MAP = f"{CONTROLLER}-configmap"
ENDED = ("Succeeded", "Failed", "Error")
REFERENCE_MODE = "workflows must use workflowTemplateRef to be executed when the controller is in reference mode"
_CONFIGURED = (
    "parallelism",
    "namespaceParallelism",
    "resourceRateLimit",
    "workflowRestrictions",
    "workflowDefaults",
    "podGCDeleteDelayDuration",
)


@chart("argo-workflows")
def install(world: World, release: ChartRelease) -> None:
    """Install the simulated chart argo-workflows: CRDs, the controller's ConfigMap and its Deployment."""
    release.crds(GROUP, *KINDS)
    config = {key: release.value(f"controller.{key}") for key in _CONFIGURED if release.value(f"controller.{key}")}
    if world.fault("argo_restrictions_edited"):
        config.pop("workflowRestrictions", None)
    text = yaml.safe_dump(config, sort_keys=False)
    release.put(CONFIG_MAPS, {"metadata": {"name": CONFIG_MAP}, "data": {"config": text}})
    tag = release.value("images.tag", "") or "v4.1.0"
    spec: Obj = {"replicas": 1} | workload_spec(CONTROLLER, {}, f"quay.io/argoproj/workflow-controller:{tag}", {})
    (container,) = spec["template"]["spec"]["containers"]
    # as in the chart's templates/controller/workflow-controller-deployment.yaml
    container |= {"name": "controller", "args": ["--workflow-workers", str(release.value("controller.workflowWorkers", 32))]}
    container["env"] = [{"name": "ARGO_NAMESPACE", "value": "argo"}, *release.value("controller.extraEnv", [])]
    release.put(DEPLOYMENTS, {"metadata": {"name": CONTROLLER}, "spec": spec})


blocked_by("workflow_controller_down", "app", CONTROLLER, f"back-off 5m0s restarting failed container={CONTROLLER}")


@check("workflow")
def step(_world: World, _pod: Obj, _node: str) -> Behaviour:
    """Play the container of a step of the check's Workflow: it writes its output to a file and ends."""
    return Exit(seconds=5)


class WorkflowController:
    """Simulated workflow controller of Argo."""

    name = "workflow_controller"
    kinds = (WORKFLOWS, TEMPLATES, DEPLOYMENTS, PODS, CONFIG_MAPS)

    def reconcile(self, world: World, _changed: Changes) -> None:
        """Schedule the next step of each Workflow that has not ended, while the controller's pod is ready."""
        if not world.served(WORKFLOWS) or not has_ready_pod(world, "argo", CONTROLLER):
            return
        if world.fault("workflow_controller_hangs"):
            return
        for workflow in world.objects(WORKFLOWS):
            if workflow.get("status", {}).get("phase") not in ENDED and "deletionTimestamp" not in workflow["metadata"]:
                at, uid = ref(workflow), workflow["metadata"]["uid"]
                pods = [(pod["metadata"]["name"], simulated_pods.phase(pod)) for pod in world.owned(PODS, uid)]
                world.later(f"factory_argo/{uid}/{sorted(pods)}", 1, 3, functools.partial(_advance, world, at))


def _advance(world: World, at: Ref) -> None:
    """Carry a Workflow one step further: refuse it, create the pod of its next step, or end it."""
    workflow = world.find(WORKFLOWS, at)
    if workflow is None or workflow.get("status", {}).get("phase") in ENDED:
        return
    template = workflow["spec"].get("workflowTemplateRef", {}).get("name", "")
    released = world.find(TEMPLATES, template, at.namespace) if template else None
    if not template and _is_strict(world):
        _end(world, workflow, "Error", REFERENCE_MODE)
        return
    spec = released["spec"] | workflow["spec"] if released else workflow["spec"]
    if "entrypoint" not in spec:
        _end(world, workflow, "Error", f'workflowtemplates.argoproj.io "{template}" not found')
        return
    _carry_out(world, workflow, spec)


def _is_strict(world: World) -> bool:
    config = world.find(CONFIG_MAPS, CONFIG_MAP, "argo") or {"data": {"config": ""}}
    restrictions = (yaml.safe_load(config["data"]["config"]) or {}).get("workflowRestrictions") or {}
    return restrictions.get("templateReferencing") in ("Strict", "Secure")


def _carry_out(world: World, workflow: Obj, spec: Obj) -> None:
    """Create the pod of the first step without one, if all steps before it have succeeded; end the Workflow after its last step."""
    templates = {template["name"]: template for template in spec["templates"]}
    entry = templates[spec["entrypoint"]]
    values: dict[str, str] = {"workflow.uid": workflow["metadata"]["uid"], "workflow.name": workflow["metadata"]["name"]}
    nodes: dict[str, Obj] = {}
    for name, part in _steps(entry):
        pod_name = f"{workflow['metadata']['name']}-{name}"
        pod = world.find(PODS, pod_name, workflow["metadata"]["namespace"])
        if pod is None:
            _start(world, workflow, spec, templates[part["template"]], pod_name, _inputs(part, values))
            _put(world, workflow, "Running", "", nodes)
            return
        phase = simulated_pods.phase(pod)
        path = f"{workflow['metadata']['name']}.{name}"
        nodes[pod_name] = {"id": pod_name, "name": path, "type": "Pod", "displayName": name, "phase": phase}
        if phase == "Failed" or (phase == "Succeeded" and world.fault("workflow_results_refused")):
            why = "child failed" if phase == "Failed" else f"failed to resolve {{{{steps.{name}.outputs.parameters.value}}}}"
            _put(world, workflow, "Failed" if phase == "Failed" else "Error", why, nodes)
            return
        if phase != "Succeeded":
            _put(world, workflow, "Running", "", nodes)
            return
        values[f"steps.{name}.outputs.parameters.value"] = simulated_pods.environment(pod).get("VALUE", "")
    outputs = [
        {"name": output["name"], "value": _filled(output["valueFrom"]["parameter"], values)}
        for output in entry.get("outputs", {}).get("parameters", ())
    ]
    nodes[workflow["metadata"]["name"]] = {
        "id": workflow["metadata"]["name"],
        "name": workflow["metadata"]["name"],
        "type": "Steps",
        "displayName": workflow["metadata"]["name"],
        "phase": "Succeeded",
        "outputs": {"parameters": outputs},
    }
    _put(world, workflow, "Succeeded", "", nodes)


def _steps(entry: Obj) -> Iterator[tuple[str, Obj]]:
    """Yield name and step of a template in order; a container alone is a step of its own."""
    if "steps" not in entry:
        yield entry["name"], {"template": entry["name"]}
    for group in entry.get("steps", ()):
        for part in group:
            yield part["name"], part


def _inputs(part: Obj, values: Mapping[str, str]) -> dict[str, str]:
    parameters = part.get("arguments", {}).get("parameters", ())
    return {**values, **{f"inputs.parameters.{entry['name']}": _filled(entry["value"], values) for entry in parameters}}


def _filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text with its `{{…}}` references replaced; unknown ones stay, as in Argo."""
    return re.sub(r"\{\{([\w.-]+)\}\}", lambda match: values.get(match[1], match[0]), text)


def _start(world: World, workflow: Obj, spec: Obj, template: Obj, name: str, values: Mapping[str, str]) -> None:
    container = {"name": "main", **template.get("container", {"image": "simulated/suspend"})}
    environment = [{**entry, "value": _filled(entry["value"], values)} for entry in container.get("env", ()) if "value" in entry]
    labels = spec.get("podMetadata", {}).get("labels", {}) | {"workflows.argoproj.io/workflow": workflow["metadata"]["name"]}
    pod: Obj = {"restartPolicy": "Never", "containers": [container | {"env": environment}]}
    made = simulated_pods.from_template({"metadata": {"labels": labels}, "spec": pod}, name, WORKFLOWS, workflow)
    world.create_soon(PODS, made)


def _end(world: World, workflow: Obj, phase: str, message: str) -> None:
    _put(world, workflow, phase, message, {})


def _put(world: World, workflow: Obj, phase: str, message: str, nodes: Mapping[str, Obj]) -> None:
    """Write a Workflow's status, if it differs. The kind has no status sub-resource."""
    status: Obj = {"phase": phase, "message": message, "nodes": dict(nodes)}
    present = {key: workflow.get("status", {}).get(key) for key in status}
    if present != status:
        world.patch(WORKFLOWS, workflow, {"status": status})


ROLES = (WorkflowController,)
