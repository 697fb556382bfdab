"""The registry of CustomResourceDefinitions: it serves the resources that they define, and empties those of deleted ones."""

from workflows.rehearsal.apiserver import crd_resources
from workflows.rehearsal.apiserver.lifecycle import Deletion, Lifecycle
from workflows.rehearsal.apiserver.object_store import ObjectStore
from workflows.rehearsal.apiserver.served_resources import ResourceTable, ServedResource
from workflows.rehearsal.apiserver.stored_object import StoredObject
from workflows.rehearsal.apiserver.watchlog import ObjectChange


class CrdRegistry:
    """A listener of the object store that serves exactly the custom resources whose CustomResourceDefinitions are stored."""

    def __init__(self, store: ObjectStore, resources: ResourceTable, lifecycle: Lifecycle) -> None:
        self._store = store
        self._resources = resources
        self._lifecycle = lifecycle
        store.listen(self._on_change)

    def _on_change(self, resource: ServedResource, change: ObjectChange) -> None:
        if resource.key == crd_resources.CRD_KEY:
            self._follow(change)
        elif resource.custom and change.kind == "DELETED":
            self._finish(resource)

    def _follow(self, change: ObjectChange) -> None:
        if change.kind == "DELETED":
            plural, _, group = change.entry.name.partition(".")
            self._resources.replace_custom(group, plural, ())
            self._store.drop((group, plural))
            return
        self._serve(change.entry)
        if change.entry.decode()["metadata"].get("deletionTimestamp"):
            self._empty(change.entry)

    def _serve(self, definition: StoredObject) -> None:
        plural, _, group = definition.name.partition(".")
        self._resources.replace_custom(group, plural, list(crd_resources.resources_of(definition)))

    def _empty(self, definition: StoredObject) -> None:
        """Delete all custom objects of a definition that is being deleted; the definition is removed with the last of them."""
        resource = next(crd_resources.resources_of(definition, unserved=True))
        entries = self._store.table(resource.key).slice()
        if not entries:
            self._release(definition)
        for entry in entries:
            self._lifecycle.delete(resource, entry, Deletion())

    def _finish(self, resource: ServedResource) -> None:
        definition = self._store.table(crd_resources.CRD_KEY).get("", f"{resource.plural}.{resource.group}")
        if definition is None or len(self._store.table(resource.key)):
            return
        if definition.decode()["metadata"].get("deletionTimestamp"):
            self._release(definition)

    def _release(self, definition: StoredObject) -> None:
        entry = self._store.table(crd_resources.CRD_KEY).get("", definition.name)
        obj = entry.decode() if entry else {"metadata": {}}
        present = obj["metadata"].get("finalizers", ())
        if entry is None or crd_resources.CLEANUP_FINALIZER not in present:
            return
        finalizers = [name for name in present if name != crd_resources.CLEANUP_FINALIZER]
        obj["metadata"]["finalizers"] = finalizers
        crd = self._resources.find(crd_resources.CRD_KEY[0], "v1", crd_resources.CRD_KEY[1])
        if finalizers:
            self._store.put(crd, obj, entry)
        else:
            self._store.remove(crd, obj, entry)

    def reload(self) -> None:
        """Serve exactly the custom resources whose definitions are in the store, after a snapshot replaced its content."""
        for resource in list(self._resources):
            if resource.custom:
                self._resources.replace_custom(resource.group, resource.plural, ())
        for definition in self._store.table(crd_resources.CRD_KEY).slice():
            self._serve(definition)
