"""Faults that a rehearsal can inject into the simulated cluster for the gates of stage base_services to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

ARGO_CD = "delivery.mode=argo_cd"

FAULTS = (
    Fault(
        name="chart_repo_unreachable",
        gate="base_services/control",
        summary="The host of cert-manager's chart repository does not resolve: Helm fails four times and stops.",
        caught_by="HelmChart cert-manager is Failed; the install Job's log says no such host.",
        source="https://github.com/k3s-io/helm-controller",
    ),
    Fault(
        name="cert_manager_webhook_crash",
        gate="base_services/control",
        summary="cert-manager's webhook crashes after Helm reported success.",
        caught_by="The install Job is complete, but Deployment cert-manager-webhook has no ready pod.",
        false_green="The install Job is complete and the Helm release is deployed.",
        source="https://cert-manager.io/docs/troubleshooting/webhook/",
    ),
    Fault(
        name="webhook_ca_missing",
        gate="base_services/control",
        summary="cert-manager's cainjector never fills in the webhooks' CA bundle, while every pod is ready.",
        caught_by="The webhook has ready endpoints but no CA bundle: the API server could not trust it.",
        source="https://cert-manager.io/docs/concepts/ca-injector/",
    ),
    Fault(
        name="two_default_storage_classes",
        gate="base_services/control",
        summary="Another provisioner's storage class is marked as the default too.",
        caught_by="Two storage classes carry the annotation of the default.",
        source="https://kubernetes.io/docs/concepts/storage/storage-classes/",
    ),
    Fault(
        name="storage_loses_writes",
        gate="base_services/functional",
        summary="Volumes bind and mount, but a container does not find what another one wrote.",
        caught_by="The check's pod reads back something other than it wrote.",
    ),
    Fault(
        name="certificate_not_issued",
        gate="base_services/functional",
        summary="cert-manager runs and accepts certificates, but issues none.",
        caught_by="The check's Certificate never becomes Ready.",
        source="https://cert-manager.io/docs/troubleshooting/",
    ),
    Fault(
        name="argo_cd_controller_down",
        gate="base_services/argo_cd",
        summary="Argo CD's application controller crashes after its installation reported success.",
        caught_by="The StatefulSet of the application controller has no ready pod.",
        false_green="The install Job is complete and the Helm release is deployed.",
        needs=ARGO_CD,
    ),
    Fault(
        name="argocd_cm_overwritten",
        gate="base_services/delivery",
        summary="Another tool owns argocd-cm and removes our keys: sync waves stop waiting.",
        caught_by="A key of argocd-cm is missing when it is read back.",
        needs=ARGO_CD,
        source="https://argo-cd.readthedocs.io/en/stable/operator-manual/health/",
    ),
    Fault(
        name="git_credentials_refused",
        gate="base_services/control",
        summary="The Git server accepts our push but refuses Argo CD's credentials, while the root Application is Healthy.",
        caught_by="The root Application has a ComparisonError about authentication.",
        needs=ARGO_CD,
        source="https://argo-cd.readthedocs.io/en/stable/user-guide/private-repositories/",
    ),
    Fault(
        name="tag_moved",
        gate="base_services/control",
        summary="The tag is moved to another commit after delivery, and everything there is Synced and Healthy.",
        caught_by="The root Application was compared with another commit than this run delivered.",
        needs=ARGO_CD,
        source="https://argo-cd.readthedocs.io/en/stable/user-guide/tracking_strategies/",
    ),
    Fault(
        name="app_project_forbids",
        gate="base_services/control",
        summary="The AppProject forbids cert-manager's namespace, while the root Application is Synced.",
        caught_by="The Application cert-manager has an InvalidSpecError about the allowed destinations.",
        needs=ARGO_CD,
        source="https://argo-cd.readthedocs.io/en/stable/user-guide/projects/",
    ),
    Fault(
        name="manifest_generation_error",
        gate="base_services/control",
        summary="The chart of cert-manager cannot be rendered with these values, while its Application stays Healthy.",
        caught_by="The Application cert-manager has a ComparisonError that names the template.",
        needs=ARGO_CD,
    ),
    Fault(
        name="argo_cd_stands_still",
        gate="base_services/control",
        summary="Argo CD's pods are ready, but its controller no longer reconciles any Application.",
        caught_by="The root Application was not reconciled since it was written.",
        needs=ARGO_CD,
    ),
    Fault(
        name="argo_cd_drift",
        gate="base_services/control",
        summary="Another client writes the fields of cert-manager's chart, so every sync succeeds and is OutOfSync at once.",
        caught_by="The Application cert-manager stays OutOfSync though its last sync succeeded.",
        needs=ARGO_CD,
        source="https://argo-cd.readthedocs.io/en/stable/user-guide/diffing/",
    ),
    Fault(
        name="root_lacks_child",
        gate="base_services/control",
        summary="The site's overlay drops a release of the stage, and the root Application is Synced and Healthy without it.",
        caught_by="The root Application does not create an Application for every release of the plan.",
        needs=ARGO_CD,
    ),
)
