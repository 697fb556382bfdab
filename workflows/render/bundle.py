"""Plan → everything that is submitted: WorkflowTemplate, Workflow, RBAC, the ConfigMaps of tasks and fleet, and what starts it."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml
from hera.workflows import WorkflowTemplate

from workflows.plan import files, fleet
from workflows.plan.model import Plan
from workflows.render import closed, names, rbac, starts
from workflows.render.steps import Settings

Object = dict[str, Any]
Build = Callable[[Plan, Settings], WorkflowTemplate]
"""`build` of one of the four pipeline modules."""


class RenderError(ValueError):
    """What was rendered is not what Argo would read; the message names the place. Always a bug of ours."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """What one plan renders to. `template` and `workflow` do not depend on how many nodes there are; the ConfigMaps do."""

    template: Object
    workflow: Object
    rbac: tuple[Object, ...]
    target_rbac: tuple[Object, ...]
    config_maps: tuple[Object, ...]
    starts: tuple[Object, ...] | None = None
    """What starts runs without a person; None for a narrowed plan, which leaves that alone."""

    def files(self) -> dict[str, str]:
        """File name → YAML, as `bringup render` writes them."""
        found = {
            "workflowtemplate.yaml": to_yaml(self.template),
            "workflow.yaml": to_yaml(self.workflow),
            "rbac.yaml": to_yaml(*self.rbac),
            "target-rbac.yaml": to_yaml(*self.target_rbac),
            "configmaps.yaml": to_yaml(*self.config_maps),
        }
        return found | ({"starts.yaml": to_yaml(*self.starts)} if self.starts else {})


def render(plan: Plan, build: Build, settings: Settings | None = None) -> Bundle:
    """Render one pipeline, e.g. `workflows.bringup.build`; deterministic. Raises RenderError when Argo would drop a field."""
    chosen = settings or Settings()
    template = build(plan, chosen).to_dict()
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": f"{plan.name}-", "namespace": chosen.namespace},
        "spec": {"workflowTemplateRef": {"name": template["metadata"]["name"]}},
    }
    started = starts.starts(plan, template, chosen)
    lost = [field for manifest in (template, workflow, *(started or ())) for field in closed.unknown_fields(manifest)]
    if lost:
        raise RenderError(f"Argo does not know the field {lost[0]}" + (f" and {len(lost) - 1} more" if len(lost) > 1 else ""))
    return Bundle(
        template=template,
        workflow=workflow,
        rbac=tuple(rbac.home(plan, chosen)),
        target_rbac=tuple(rbac.target(plan)),
        config_maps=_config_maps(plan, chosen),
        starts=started,
    )


def to_yaml(*objects: Object) -> str:
    """YAML documents with keys in the given order and no folded lines, so that `{{ }}` stays on one line."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump_all(objects, Dumper=dumper, sort_keys=False, width=10**9, explicit_start=len(objects) > 1)


def _config_maps(plan: Plan, settings: Settings) -> tuple[Object, ...]:
    short = names.short(plan.inputs)
    tasks = {name: data.decode() for name, data in files.tasks_folder(plan).items()}
    packed = fleet.files(plan.digest, plan.hosts)
    binary = {name: base64.b64encode(data).decode() for name, data in packed.items()}
    return (
        _config_map(f"bringup-tasks-{short}", settings, {"data": tasks}),
        _config_map(f"bringup-fleet-{short}", settings, {"binaryData": binary}),
    )


def _config_map(name: str, settings: Settings, content: Object) -> Object:
    meta = {"name": name, "namespace": settings.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, **content}
