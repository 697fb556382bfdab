"""Faults that a rehearsal can inject into the simulated cluster for the gates of stage factory_argo to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="workflow_controller_down",
        gate="factory_argo/control",
        summary="The workflow controller crashes after Helm reported success.",
        caught_by="The install Job is complete, but the controller's Deployment has no ready pod.",
        false_green="The install Job is complete and the Helm release is deployed.",
        source="https://argo-workflows.readthedocs.io/en/latest/workflow-controller-configmap/",
    ),
    Fault(
        name="argo_restrictions_edited",
        gate="factory_argo/control",
        summary="Somebody removes the restriction to released templates from the controller's ConfigMap.",
        caught_by="The ConfigMap lacks templateReferencing.",
        cause=r"setting templateReferencing of the controller is not set",
        false_green="The Helm release is deployed with the planned values.",
        source="https://argo-workflows.readthedocs.io/en/latest/workflow-restrictions/",
    ),
    Fault(
        name="workflow_controller_hangs",
        gate="factory_argo/functional",
        summary="The controller's pod is ready, but it does not get its lease and takes no Workflow.",
        caught_by="The check's Workflow never gets a phase.",
        false_green="The controller is ready, and Workflows can be created.",
        source="https://argo-workflows.readthedocs.io/en/latest/high-availability/",
    ),
    Fault(
        name="workflow_results_refused",
        gate="factory_argo/functional",
        summary="The API server refuses the WorkflowTaskResults of the pods, so that no step has an output.",
        caught_by="The check's Workflow ends with an error about its outputs.",
        false_green="The pods of the Workflow succeed.",
        source="https://argo-workflows.readthedocs.io/en/latest/workflow-rbac/",
    ),
)
