"""The object store of an emulated cluster: a table and a change log for each resource, and one revision counter for all."""

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.stored_object import Object, StoredObject, encode_object
from workflows.rehearsal.apiserver.watchlog import ObjectChange, WatchLog

FIRST_REVISION = 1000
MAX_OBJECT_BYTES = 3 << 19
"""The largest object in bytes that etcd accepts (1.5 MiB, `--max-request-bytes`)."""
Key = tuple[str, str]


class ObjectTable:
    """The objects of one resource in the order of namespace and name, and in `log` their recent changes."""

    def __init__(self, revision: int) -> None:
        self.entries: dict[Key, StoredObject] = {}
        self.log = WatchLog(revision)
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, namespace: str, name: str) -> StoredObject | None:
        """Return the object with this namespace and name, or None. The namespace is empty for cluster-scoped resources."""
        return self.entries.get((namespace, name))

    def slice(self, namespace: str = "") -> list[StoredObject]:
        """Return the objects of one namespace (empty: of all), sorted by namespace and name."""
        keys = self._keys
        if namespace:
            # with a zero byte it sorts right behind the namespace, before any longer name
            keys = keys[bisect.bisect_left(keys, (namespace, "")) : bisect.bisect_left(keys, (namespace + "\0", ""))]
        return [self.entries[key] for key in keys]

    def put(self, entry: StoredObject) -> None:
        """Add an object, or replace the one with its namespace and name."""
        key = (entry.namespace, entry.name)
        if key not in self.entries:
            bisect.insort(self._keys, key)
        self.entries[key] = entry

    def remove(self, entry: StoredObject) -> None:
        """Remove an object. Raises KeyError if the table lacks it."""
        key = (entry.namespace, entry.name)
        del self.entries[key]
        del self._keys[bisect.bisect_left(self._keys, key)]


Listener = Callable[[ServedResource, ObjectChange], None]


class ObjectStore:
    """All objects of an emulated cluster: one table for each resource, and the revision counter that they share."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self.changes: Counter[tuple[str, str]] = Counter()
        """Number of changes of each resource so far, by its `ServedResource.key`. A restored snapshot is one more."""
        self._tables: dict[tuple[str, str], ObjectTable] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Register a function that is called after every change, before the request is answered."""
        self._listeners.append(listener)

    def table(self, key: tuple[str, str]) -> ObjectTable:
        """Return the table of a resource by its `ServedResource.key`; an empty one is created on first use."""
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = ObjectTable(self.revision)
        return table

    def tables(self) -> Iterable[tuple[tuple[str, str], ObjectTable]]:
        """Return all pairs of a resource's key and its table."""
        return self._tables.items()

    def get(self, resource: ServedResource, namespace: str, name: str) -> StoredObject:
        """Return the stored object with this namespace and name. Raises StatusError (404) if there is none."""
        entry = self.table(resource.key).get(namespace, name)
        if entry is None:
            raise resource.missing(name)
        return entry

    def put(self, resource: ServedResource, obj: Object, previous: StoredObject | None, *, applied: bool = False) -> StoredObject:
        """Store an object under the next revision and notify watchers. Raises StatusError (500) if it is too large for etcd.

        `previous` is the stored object that it replaces, None for a new one; `applied` says that server-side apply wrote it.
        """
        entry = self._fitting(resource, obj, applied)
        self.table(resource.key).put(entry)
        self._publish(resource, ObjectChange("MODIFIED" if previous else "ADDED", entry, previous))
        return entry

    def remove(self, resource: ServedResource, obj: Object, previous: StoredObject) -> StoredObject:
        """Remove the object `previous` under the next revision, notify watchers, and return its last state, which `obj` holds."""
        entry = self._next(resource, obj)
        self.table(resource.key).remove(previous)
        self._publish(resource, ObjectChange("DELETED", entry, previous))
        return entry

    def _fitting(self, resource: ServedResource, obj: Object, applied: bool) -> StoredObject:
        """Return the stored form of an object under the next revision. Raises StatusError (500) if it is too large for etcd.

        As on a real server, managedFields are dropped from an object that is too large with them, except in an apply request.
        """
        entry = self._next(resource, obj)
        if len(entry.raw) > MAX_OBJECT_BYTES and not applied and obj["metadata"].pop("managedFields", None):
            entry = encode_object(resource, obj, self.revision)
        if len(entry.raw) > MAX_OBJECT_BYTES:
            self.revision -= 1
            raise errors.etcd_refused()
        return entry

    def _next(self, resource: ServedResource, obj: Object) -> StoredObject:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        return encode_object(resource, obj, self.revision)

    def _publish(self, resource: ServedResource, change: ObjectChange) -> None:
        self.changes[resource.key] += 1
        self.table(resource.key).log.append(change)
        for listener in self._listeners:
            listener(resource, change)

    def drop(self, key: tuple[str, str]) -> None:
        """Remove the empty table of a resource that is no longer served, and end its watches with 410."""
        table = self._tables.pop(key, None)
        if table is not None:
            table.log.expire(self.revision)

    def replace(self, tables: Mapping[tuple[str, str], Iterable[StoredObject]], revision: int) -> None:
        """Replace all objects. The revision goes on from the larger counter, and every watch ends with 410."""
        self.revision = max(self.revision, revision) + 1
        for _, table in self.tables():
            table.log.expire(self.revision)
        self.changes.update({*self._tables, *tables})
        self._tables = {}
        for key, entries in tables.items():
            table = self.table(key)
            for entry in entries:
                table.put(entry)
