"""Faults that a rehearsal can inject into the simulated cluster for the gates of stage factory_projects to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="project_quota_missing",
        gate="factory_projects/control",
        summary="Another tool deletes the quotas of projects as soon as they are there.",
        caught_by="A project has no ResourceQuota whose status the API server keeps.",
        cause=r"project \S+ has no quota that the API server counts",
        false_green="The namespaces exist and pods start in them.",
        source="https://kubernetes.io/docs/concepts/policy/resource-quotas/",
    ),
    Fault(
        name="developers_are_admins",
        gate="factory_projects/access",
        summary="A ClusterRoleBinding gives cluster-admin to every service account.",
        caught_by="The authorizer lets a developer's account patch Workflows, which answers approvals.",
        cause=r"system:serviceaccount:\S+:developer may patch workflows",
        false_green="Developers can submit builds and read their logs.",
        source="https://kubernetes.io/docs/reference/access-authn-authz/rbac/",
    ),
    Fault(
        name="developers_cannot_submit",
        gate="factory_projects/access",
        summary="The role binding of developers was deleted: an admin cleaned up.",
        caught_by="The authorizer refuses a developer's account to create Workflows.",
        cause=r"may not create workflows",
        source="https://argo-workflows.readthedocs.io/en/latest/security/",
    ),
)
