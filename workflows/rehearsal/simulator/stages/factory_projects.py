"""Stage factory_projects: the simulated controller that counts quotas, and other people who change quotas and rights."""

from __future__ import annotations

from workflows.rehearsal.simulator.api.api_kinds import NAMESPACES, Obj, ObjectKind, Ref, labels_of, ref
from workflows.rehearsal.simulator.world import Changes, World

QUOTAS = ObjectKind("", "v1", "resourcequotas", "ResourceQuota")
RBAC = "rbac.authorization.k8s.io"
BINDINGS = ObjectKind(RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_BINDINGS = ObjectKind(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
CLUSTER_ROLES = ObjectKind(RBAC, "v1", "clusterroles", "ClusterRole", False)
PROJECT = "bringup/project"
FOREIGN = "everybody-is-admin"


class ResourceQuotas:
    """Simulated resource-quota controller of kube-controller-manager: a quota's status has what is counted."""

    name = "resource_quotas"
    kinds = (QUOTAS,)

    def reconcile(self, world: World, _changed: Changes) -> None:
        """Write the status of each quota; delete those of projects while a fault says so."""
        for quota in list(world.objects(QUOTAS)):
            if world.fault("project_quota_missing") and _is_project(world, quota):
                world.delete(QUOTAS, quota)
                continue
            hard = quota["spec"].get("hard") or {}
            if (quota.get("status") or {}).get("hard") != hard:
                world.patch(QUOTAS, quota, {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}, status=True)


class OtherAdmins:
    """Simulated people who give rights to everybody, or take those of developers away, while a fault says so."""

    name = "other_admins"
    kinds = (BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, NAMESPACES)

    def reconcile(self, world: World, _changed: Changes) -> None:
        """Play the faults `developers_are_admins` and `developers_cannot_submit`, and undo the first when it has ended."""
        if world.fault("developers_are_admins"):
            world.ensure(CLUSTER_ROLES, {"metadata": {"name": FOREIGN}, "rules": [_EVERYTHING]})
            world.ensure(CLUSTER_BINDINGS, _foreign_binding())
        elif world.find(CLUSTER_BINDINGS, FOREIGN) is not None:
            world.delete(CLUSTER_BINDINGS, Ref("", FOREIGN))
        if world.fault("developers_cannot_submit"):
            for binding in list(world.objects(BINDINGS)):
                if binding["metadata"]["name"] == "developer" and _is_project(world, binding):
                    world.delete(BINDINGS, binding)


_EVERYTHING: Obj = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def _foreign_binding() -> Obj:
    return {
        "metadata": {"name": FOREIGN},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": FOREIGN},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:serviceaccounts"}],
    }


def _is_project(world: World, obj: Obj) -> bool:
    """Return True if an object lies in the namespace of a project."""
    space = world.find(NAMESPACES, ref(obj).namespace)
    return space is not None and PROJECT in labels_of(space)


ROLES = (ResourceQuotas, OtherAdmins)
