"""Faults of stage base_services."""

from workflows.rehearsal.faults.registry import Fault

FAULTS = (
    Fault(
        name="chart_repo_unreachable",
        stage="base_services",
        gate="base_services/control",
        summary="The repository of cert-manager's chart does not resolve: Helm fails four times and stops.",
        caught_by="HelmChart cert-manager is Failed; the install Job's log says no such host.",
    ),
    Fault(
        name="cert_manager_webhook_crash",
        stage="base_services",
        gate="base_services/control",
        summary="cert-manager's webhook crashes, after Helm reported success.",
        caught_by="The install Job is complete, but Deployment cert-manager-webhook has no ready pod.",
        false_green="0.6",
    ),
    Fault(
        name="webhook_ca_missing",
        stage="base_services",
        gate="base_services/control",
        summary="cainjector never fills in the webhooks' CA bundle, while every pod is ready.",
        caught_by="The webhook has ready endpoints but no CA bundle: the API server could not trust it.",
    ),
    Fault(
        name="two_default_storage_classes",
        stage="base_services",
        gate="base_services/control",
        summary="Another provisioner's storage class is marked as the default too.",
        caught_by="Two storage classes carry the annotation of the default.",
    ),
    Fault(
        name="storage_loses_writes",
        stage="base_services",
        gate="base_services/functional",
        summary="Volumes bind and mount, but what one container writes the next does not find.",
        caught_by="The check's pod reads back something else than it wrote.",
    ),
    Fault(
        name="certificate_not_issued",
        stage="base_services",
        gate="base_services/functional",
        summary="cert-manager runs and accepts certificates, but issues none.",
        caught_by="The check's Certificate never gets Ready.",
    ),
)
