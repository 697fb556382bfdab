"""Stage factory_pipelines: simulated people who edit a released template, or install one that nobody released."""

from __future__ import annotations

from workflows.rehearsal.simulator.api.api_kinds import NAMESPACES, labels_of, ref
from workflows.rehearsal.simulator.stages.factory_argo import TEMPLATES
from workflows.rehearsal.simulator.stages.factory_projects import PROJECT
from workflows.rehearsal.simulator.world import Changes, World

STRANGER = "my-own-build"


class TemplateEditors:
    """Simulated people who change WorkflowTemplates of projects while a fault says so."""

    name = "template_editors"
    kinds = (TEMPLATES, NAMESPACES)

    def reconcile(self, world: World, _changed: Changes) -> None:
        """Play the faults `released_template_edited` and `unreleased_template`."""
        if not world.served(TEMPLATES):
            return
        for template in list(world.objects(TEMPLATES)):
            space = world.find(NAMESPACES, ref(template).namespace)
            if space is None or PROJECT not in labels_of(space) or template["metadata"]["name"] == STRANGER:
                continue
            if world.fault("released_template_edited") and template["spec"].get("priority") != 7:
                world.patch(TEMPLATES, template, {"spec": {"priority": 7}})
            if world.fault("unreleased_template"):
                meta = {"name": STRANGER, "namespace": template["metadata"]["namespace"]}
                world.ensure(TEMPLATES, {"metadata": meta, "spec": {"entrypoint": "main", "templates": []}})


ROLES = (TemplateEditors,)
