"""The one admission plugin that clients depend on: NamespaceLifecycle."""

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.resources import Resource, Resources
from workflows.rehearsal.apiserver.store import Store

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class Namespaces:
    """Refuses what must not happen in or to a namespace."""

    def __init__(self, store: Store, resources: Resources) -> None:
        self._store = store
        self._namespaces = resources.core("namespaces")

    def check_create(self, resource: Resource, namespace: str, name: str) -> None:
        """Raises ApiError: 404, the namespace is missing; 403, it is going away."""
        if not resource.namespaced:
            return
        entry = self._store.get(self._namespaces, "", namespace)
        if entry.decode()["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise errors.forbidden(resource.group, resource.plural, name, why, cause=cause)

    def check_delete(self, resource: Resource, name: str) -> None:
        """Raises ApiError: 403, the namespace must stay."""
        if resource is self._namespaces and name in IMMORTAL:
            raise errors.forbidden("", "namespaces", name, "this namespace may not be deleted")
