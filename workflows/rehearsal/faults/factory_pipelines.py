"""Faults that a rehearsal can inject into the simulated cluster for the gate of stage factory_pipelines to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="released_template_edited",
        gate="factory_pipelines/control",
        summary="Somebody edits a released WorkflowTemplate in the cluster, so that builds do something else than was released.",
        caught_by="The digest of the template's spec is not that of the released one.",
        cause=r"WorkflowTemplate \S+ is not as it was released",
        false_green="The template exists, and Workflows that refer to it run.",
        needs="has_pipelines=True",
        source="https://argo-workflows.readthedocs.io/en/latest/workflow-templates/",
    ),
    Fault(
        name="unreleased_template",
        gate="factory_pipelines/control",
        summary="A project has a WorkflowTemplate that nobody released, which its developers can submit.",
        caught_by="The list of templates has a name that the spec does not release.",
        cause=r"WorkflowTemplate \S+ was not released",
        false_green="Template referencing is Strict, and this template can be referred to.",
        needs="has_pipelines=True",
        source="https://argo-workflows.readthedocs.io/en/latest/workflow-restrictions/",
    ),
)
