"""All objects in tables, one revision counter, and a log of changes per resource."""

import bisect
from collections.abc import Callable, Iterable, Mapping

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.entry import Entry, Object, entry_of
from workflows.rehearsal.apiserver.resources import Resource
from workflows.rehearsal.apiserver.watchlog import Change, WatchLog

FIRST_REVISION = 1000
LARGEST = 3 << 19
"""Bytes of an object that etcd takes (`--max-request-bytes`)."""
Key = tuple[str, str]


class Table:
    """The objects of one resource, by namespace and name, in that order."""

    def __init__(self, revision: int) -> None:
        self.entries: dict[Key, Entry] = {}
        self.log = WatchLog(revision)
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, namespace: str, name: str) -> Entry | None:
        """The entry, or None."""
        return self.entries.get((namespace, name))

    def slice(self, namespace: str = "") -> list[Entry]:
        """The entries of a namespace, or of all, in order."""
        keys = self._keys
        if namespace:
            keys = keys[bisect.bisect_left(keys, (namespace, "")) : bisect.bisect_left(keys, (namespace + "\0", ""))]
        return [self.entries[key] for key in keys]

    def put(self, entry: Entry) -> None:
        """Adds or replaces an entry."""
        key = (entry.namespace, entry.name)
        if key not in self.entries:
            bisect.insort(self._keys, key)
        self.entries[key] = entry

    def remove(self, entry: Entry) -> None:
        """Takes an entry out."""
        key = (entry.namespace, entry.name)
        del self.entries[key]
        del self._keys[bisect.bisect_left(self._keys, key)]


Listener = Callable[[Resource, Change], None]


class Store:
    """All tables and the revision counter that they share."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self._tables: dict[tuple[str, str], Table] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Calls `listener` after every change, before the change's request is answered."""
        self._listeners.append(listener)

    def table(self, key: tuple[str, str]) -> Table:
        """The table of a resource (`Resource.key`)."""
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = Table(self.revision)
        return found

    def tables(self) -> Iterable[tuple[tuple[str, str], Table]]:
        """All tables with their keys."""
        return self._tables.items()

    def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        """One object.

        Raises:
            ApiError: 404.
        """
        found = self.table(resource.key).get(namespace, name)
        if found is None:
            raise resource.missing(name)
        return found

    def put(self, resource: Resource, obj: Object, previous: Entry | None, *, applied: bool = False) -> Entry:
        """Stores an object under the next revision and tells the watchers.

        Raises:
            ApiError: 500 for an object that is too large for etcd.
        """
        entry = self._fitting(resource, obj, applied)
        self.table(resource.key).put(entry)
        self._publish(resource, Change("MODIFIED" if previous else "ADDED", entry, previous))
        return entry

    def remove(self, resource: Resource, obj: Object, previous: Entry) -> Entry:
        """Takes an object out under the next revision; `obj` is its last state."""
        entry = self._next(resource, obj)
        self.table(resource.key).remove(previous)
        self._publish(resource, Change("DELETED", entry, previous))
        return entry

    def _fitting(self, resource: Resource, obj: Object, applied: bool) -> Entry:
        """The object's entry; as a real server does, without its managedFields where it would be too large with them, but not for
        who applies."""
        entry = self._next(resource, obj)
        if len(entry.raw) > LARGEST and not applied and obj["metadata"].pop("managedFields", None):
            entry = entry_of(resource, obj, self.revision)
        if len(entry.raw) > LARGEST:
            self.revision -= 1
            raise errors.etcd_refused()
        return entry

    def _next(self, resource: Resource, obj: Object) -> Entry:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        return entry_of(resource, obj, self.revision)

    def _publish(self, resource: Resource, change: Change) -> None:
        self.table(resource.key).log.append(change)
        for listener in self._listeners:
            listener(resource, change)

    def drop(self, key: tuple[str, str]) -> None:
        """Forgets a table, which must be empty; its watchers end."""
        table = self._tables.pop(key, None)
        if table is not None:
            table.log.expire(self.revision)

    def replace(self, tables: Mapping[tuple[str, str], Iterable[Entry]], revision: int) -> None:
        """Exchanges the whole content. Revisions go on from the larger counter; every watcher must list again."""
        self.revision = max(self.revision, revision) + 1
        for _, table in self.tables():
            table.log.expire(self.revision)
        self._tables = {}
        for key, entries in tables.items():
            table = self.table(key)
            for entry in entries:
                table.put(entry)
