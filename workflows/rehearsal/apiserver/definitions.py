"""Follows the CustomResourceDefinitions in the store: serves what they define, deletes the objects with the definition."""

from workflows.rehearsal.apiserver import crds
from workflows.rehearsal.apiserver.entry import Entry
from workflows.rehearsal.apiserver.lifecycle import Deletion, Lifecycle
from workflows.rehearsal.apiserver.resources import Resource, Resources
from workflows.rehearsal.apiserver.store import Store
from workflows.rehearsal.apiserver.watchlog import Change


class Definitions:
    """Follows the definitions in the store."""

    def __init__(self, store: Store, resources: Resources, lifecycle: Lifecycle) -> None:
        self._store = store
        self._resources = resources
        self._lifecycle = lifecycle
        store.listen(self._on_change)

    def _on_change(self, resource: Resource, change: Change) -> None:
        if resource.key == crds.KEY:
            self._follow(change)
        elif resource.custom and change.kind == "DELETED":
            self._finish(resource)

    def _follow(self, change: Change) -> None:
        plural, _, group = change.entry.name.partition(".")
        if change.kind == "DELETED":
            self._resources.replace_custom(group, plural, ())
            self._store.drop((group, plural))
            return
        self._resources.replace_custom(group, plural, list(crds.resources_of(change.entry)))
        if change.entry.decode()["metadata"].get("deletionTimestamp"):
            self._empty(change.entry)

    def _empty(self, definition: Entry) -> None:
        """Deletes the objects of a definition that is going away; the definition follows the last of them."""
        resource = next(crds.resources_of(definition, unserved=True))
        entries = self._store.table(resource.key).slice()
        if not entries:
            self._release(definition)
        for entry in entries:
            self._lifecycle.delete(resource, entry, Deletion())

    def _finish(self, resource: Resource) -> None:
        definition = self._store.table(crds.KEY).get("", f"{resource.plural}.{resource.group}")
        if (
            definition is not None
            and not len(self._store.table(resource.key))
            and definition.decode()["metadata"].get("deletionTimestamp")
        ):
            self._release(definition)

    def _release(self, definition: Entry) -> None:
        held = self._store.table(crds.KEY).get("", definition.name)
        obj = held.decode() if held else {"metadata": {}}
        if held is None or crds.CLEANUP not in obj["metadata"].get("finalizers", ()):
            return
        left = [name for name in obj["metadata"].get("finalizers", ()) if name != crds.CLEANUP]
        obj["metadata"]["finalizers"] = left
        crd = self._resources.find(crds.KEY[0], "v1", crds.KEY[1])
        if left:
            self._store.put(crd, obj, held)
        else:
            self._store.remove(crd, obj, held)

    def reload(self) -> None:
        """Serves what the store's definitions say, after the store was exchanged."""
        for resource in list(self._resources):
            if resource.custom:
                self._resources.replace_custom(resource.group, resource.plural, ())
        for entry in self._store.table(crds.KEY).slice():
            plural, _, group = entry.name.partition(".")
            self._resources.replace_custom(group, plural, list(crds.resources_of(entry)))
