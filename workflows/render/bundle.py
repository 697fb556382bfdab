"""Render everything that is submitted for a plan: WorkflowTemplate, Workflow, RBAC, ConfigMaps, schedule and event bindings."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml
from hera.workflows import WorkflowTemplate

from workflows.plan import run_folders
from workflows.plan.model import Plan
from workflows.render import names, rbac, starts, titles, unknown_fields
from workflows.render.steps import Settings

Object = dict[str, Any]
Build = Callable[[Plan, Settings], WorkflowTemplate]
"""Type of the function `build` in the four pipeline modules."""


class RenderError(ValueError):
    """Exception: Argo would read a rendered manifest differently; the message names the place. It is always a bug of bringup."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The manifests of one plan. `template` and `workflow` do not grow with the number of hosts; the ConfigMaps do."""

    template: Object
    workflow: Object
    rbac: tuple[Object, ...]
    target_rbac: tuple[Object, ...]
    config_maps: tuple[Object, ...]
    starts: tuple[Object, ...] | None = None
    """CronWorkflow, event bindings and their accounts; None for a narrowed plan, which must not replace those of the whole plan."""

    def files(self) -> dict[str, str]:
        """Return file name → YAML text, as `bringup render` writes the files."""
        result = {
            "workflowtemplate.yaml": to_yaml(self.template),
            "workflow.yaml": to_yaml(self.workflow),
            "rbac.yaml": to_yaml(*self.rbac),
            "target-rbac.yaml": to_yaml(*self.target_rbac),
            "configmaps.yaml": to_yaml(*self.config_maps),
        }
        return result | ({"starts.yaml": to_yaml(*self.starts)} if self.starts else {})


def render(plan: Plan, build: Build, settings: Settings | None = None) -> Bundle:
    """Return the manifests of a plan; `build` is the function of its pipeline, such as `workflows.bringup.build`.

    Equal input gives equal manifests. Raises RenderError if Argo would drop a field.
    """
    chosen = settings or Settings()
    template = build(plan, chosen).to_dict()
    titles.describe_templates(template, plan)
    kind = template["metadata"]["labels"]["bringup/pipeline"]
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": f"{kind}-{plan.name}-", "namespace": chosen.namespace},
        "spec": {"workflowTemplateRef": {"name": template["metadata"]["name"]}},
    }
    started = starts.starts(plan, template, chosen)
    lost = [field for manifest in (template, workflow, *(started or ())) for field in unknown_fields.unknown_fields(manifest)]
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
    """Return YAML documents with keys in their own order and without folded lines, so that `{{ }}` stays on one line."""
    # libyaml's dumper is several times faster than PyYAML's own, where it is built in
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump_all(objects, Dumper=dumper, sort_keys=False, width=10**9, explicit_start=len(objects) > 1)


def _config_maps(plan: Plan, settings: Settings) -> tuple[Object, ...]:
    short = names.short(plan.inputs)
    tasks = {name: data.decode() for name, data in run_folders.tasks_folder(plan).items()}
    packed = run_folders.fleet_folder(plan.digest, plan.hosts)
    binary = {name: base64.b64encode(data).decode() for name, data in packed.items()}
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"bringup-{name}-{short}", "namespace": settings.namespace},
            "immutable": True,
            field: content,
        }
        for name, field, content in (("tasks", "data", tasks), ("fleet", "binaryData", binary))
    )
