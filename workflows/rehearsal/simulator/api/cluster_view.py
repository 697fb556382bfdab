"""The simulator's cache of API objects: reads come from memory, and writes by other clients are noticed and read again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from workflows.rehearsal.simulator.api import api_client
from workflows.rehearsal.simulator.api.api_client import (
    Api,
    ListExpired,
    ObjectHead,
    ServerAnswer,
    SimulatorApiError,
    Write,
    decode_object,
)
from workflows.rehearsal.simulator.api.api_kinds import CRDS, LEASES, PODS, Obj, ObjectKind, Ref, owner_uid, ref

_HEADS = msgspec.json.Decoder(ObjectHead)
_NONE: dict[Ref, Obj] = {}


class _Objects(dict[Ref, Obj]):
    """The cached objects of one kind. It finds objects by the labels and owners that were asked for once, without a look at all."""

    def __init__(self) -> None:
        super().__init__()
        self._labels: dict[str, dict[str, dict[Ref, None]]] = {}
        self._owners: dict[str, dict[Ref, None]] | None = None

    def __setitem__(self, at: Ref, obj: Obj) -> None:
        before = self.get(at)
        super().__setitem__(at, obj)
        for key, values in self._labels.items():
            value, former = _label(obj, key), None if before is None else _label(before, key)
            if value != former:
                _move(values, at, former, value)
        if self._owners is not None and (before is None or owner_uid(before) != owner_uid(obj)):
            _move(self._owners, at, None if before is None else owner_uid(before), owner_uid(obj))

    def discard(self, at: Ref) -> bool:
        """Remove an object and return True if there was one."""
        before = self.pop(at, None)
        if before is None:
            return False
        for key, values in self._labels.items():
            _move(values, at, _label(before, key), None)
        if self._owners is not None:
            _move(self._owners, at, owner_uid(before), None)
        return True

    def clear(self) -> None:
        super().clear()
        self._labels.clear()
        self._owners = None

    def labelled(self, key: str, value: str) -> Collection[Ref]:
        """Return the objects with this label, in their order."""
        if key not in self._labels:
            values: dict[str, dict[Ref, None]] = {}
            for at, obj in self.items():
                _move(values, at, None, _label(obj, key))
            self._labels[key] = values
        return self._labels[key].get(value, ())

    def owned(self, uid: str) -> Collection[Ref]:
        """Return the objects whose controller has this UID, in their order."""
        if self._owners is None:
            self._owners = {}
            for at, obj in self.items():
                _move(self._owners, at, None, owner_uid(obj))
        return self._owners.get(uid, ())


def _label(obj: Obj, key: str) -> str | None:
    value: str | None = (obj["metadata"].get("labels") or {}).get(key)
    return value


def _move(values: dict[str, dict[Ref, None]], at: Ref, former: str | None, value: str | None) -> None:
    if former is not None:
        rest = values[former]
        del rest[at]
        if not rest:
            del values[former]
    if value is not None:
        values.setdefault(value, {})[at] = None


class ClusterView:
    """A cache of all objects of some kinds, the tracked ones. Reads come from memory, writes go to the server and then into memory.

    Returned objects must not be modified in place. `sync` asks the server for its newest resourceVersion. If it has grown by more
    than this client's own writes, another client wrote, and the tracked kinds are listed again. The emulated server counts the
    changes of each kind, so that only kinds that others wrote are listed. Counting is an optimisation: in doubt a kind is listed.
    """

    def __init__(self, api: Api, kinds: Iterable[ObjectKind]) -> None:
        self.api = api
        self.kinds = tuple(dict.fromkeys((CRDS, *kinds)))
        self._objects = {kind: _Objects() for kind in self.kinds}
        self._dirty: dict[ObjectKind, set[Ref]] = {kind: set() for kind in self.kinds}
        self._served: set[str] = set()
        self._revision = ""
        self._writes: Counter[str] = Counter()
        self._counts: dict[str, int] = {}
        self._bulk = WriteQueue(api)
        self._ensured: dict[tuple[ObjectKind, Ref], tuple[bytes, str, int]] = {}

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def objects(self, kind: ObjectKind) -> Collection[Obj]:
        """Return all objects of a tracked kind. Writing during iteration is allowed."""
        return tuple(self._objects[kind].values())

    def find(self, kind: ObjectKind, at: Ref | str, namespace: str = "") -> Obj | None:
        """Return one object of a tracked kind from memory, or None. `at` is its Ref, or its name in `namespace`."""
        return self._objects[kind].get(at if isinstance(at, Ref) else Ref(namespace, at))

    def read(self, kind: ObjectKind, name: str, namespace: str = "") -> Obj | None:
        """Return one object of any kind, or None: from memory if its kind is tracked, else from the server."""
        return self.find(kind, name, namespace) if kind in self._objects else self.api.get(kind, name, namespace)

    def select(self, kind: ObjectKind, namespace: str = "", labels: Mapping[str, str] | None = None) -> Iterator[Obj]:
        """Yield the objects of a tracked kind that carry all these labels, in one namespace (empty: in all)."""
        wanted = (labels or {}).items()
        cached = self._objects[kind]
        fewest = min((cached.labelled(*label) for label in wanted), key=len, default=cached)
        for obj in [cached[at] for at in fewest]:
            meta = obj["metadata"]
            if (not namespace or meta.get("namespace") == namespace) and wanted <= meta.get("labels", {}).items():
                yield obj

    def owned(self, kind: ObjectKind, uid: str) -> list[Obj]:
        """Return the objects of a tracked kind whose controller is the object with this UID."""
        cached = self._objects[kind]
        return [cached[at] for at in cached.owned(uid)]

    def served(self, kind: ObjectKind) -> bool:
        """Return True if the API serves the kind: it is built in, or its CustomResourceDefinition exists."""
        return "." not in kind.group or kind.group.endswith(".k8s.io") or f"{kind.plural}.{kind.group}" in self._served

    # ---- writing -------------------------------------------------------------------------------------------------------------

    def create(self, kind: ObjectKind, obj: Obj) -> Obj:
        """Create an object and return it, or return the object that has its name already."""
        present = self._known(kind, ref(obj))
        if present is not None:
            return present
        created = self._created(kind, obj, self.api.write(api_client.creation(kind, obj)))
        self._keep(kind, created)
        return created

    def create_soon(self, kind: ObjectKind, obj: Obj) -> None:
        """Queue the creation of an object unless memory has one of its name; the cache shows it after the next `flush`."""
        at = ref(obj)
        if self._known(kind, at) is None:
            write = api_client.creation(kind, obj)
            self._bulk.add(
                (kind, at), write, lambda got: self._created(kind, obj, got), lambda made: self._keep_sent(kind, at, made)
            )

    def patch(self, kind: ObjectKind, obj: Obj | Ref, change: Obj, *, status: bool = False) -> Obj | None:
        """Apply a JSON merge patch and return the object, or None if it is gone.

        No request is sent for a patch that changes nothing. `status` patches the status sub-resource.
        """
        at = obj if isinstance(obj, Ref) else ref(obj)
        present = self._known(kind, at)
        if present is not None and contains(present, change):
            return present
        patched = _patched(self.api.write(api_client.merging(kind, at, change, "status" if status else "")))
        self._keep_sent(kind, at, patched)
        return patched

    def patch_soon(self, kind: ObjectKind, obj: Obj | Ref, change: Obj, *, status: bool = False) -> None:
        """Queue a JSON merge patch, unless it would change nothing; the cache shows it after the next `flush`."""
        at = obj if isinstance(obj, Ref) else ref(obj)
        present = self._known(kind, at)
        if present is None or not contains(present, change):
            write = api_client.merging(kind, at, change, "status" if status else "")
            self._bulk.add((kind, at), write, _patched, lambda it: self._keep_sent(kind, at, it))

    def ensure(self, kind: ObjectKind, obj: Obj) -> Obj:
        """Create an object, or patch it until it contains `obj`, and return it.

        A `status` in `obj` is written to the status sub-resource. The server fills in defaults inside lists, so lists never compare
        equal. Therefore an object that was ensured before counts as unchanged until its generation moves.
        """
        main = {key: value for key, value in obj.items() if key != "status"}
        stored = self.create(kind, main)
        wanted = msgspec.json.encode(main)
        if self._ensured.get((kind, ref(stored))) != _version(wanted, stored) or not contains(stored["metadata"], main["metadata"]):
            stored = self.patch(kind, stored, main) or stored
            if "generation" in stored["metadata"]:
                self._ensured[kind, ref(stored)] = _version(wanted, stored)
        return self.patch(kind, stored, {"status": obj["status"]}, status=True) or stored if "status" in obj else stored

    def delete(self, kind: ObjectKind, obj: Obj | Ref) -> None:
        """Delete an object now. One with finalizers stays until they are removed; a missing one is no error."""
        at = obj if isinstance(obj, Ref) else ref(obj)
        present = self._known(kind, at)
        if self.api.delete(kind, at):
            self._writes[kind.resource] += 1
        if kind not in self._objects:
            return
        if present is None or "deletionTimestamp" in present["metadata"]:
            self._counts.pop(kind.resource, None)  # perhaps nothing changed
        remaining = self.api.get(kind, at.name, at.namespace) if present and _finalizers(present) else None
        if remaining is None:
            self._drop(kind, at)
        else:
            self._objects[kind][at] = remaining
            self._dirty[kind].add(at)

    def delete_soon(self, kind: ObjectKind, obj: Obj | Ref) -> None:
        """Queue the deletion of an object without finalizers; the cache drops it at the next `flush`."""
        at = obj if isinstance(obj, Ref) else ref(obj)

        def done(made: Obj | None) -> None:
            self._writes[kind.resource] += made is not None
            present = self._known(kind, at)
            if present is None or _finalizers(present):
                self._counts.pop(kind.resource, None)  # perhaps it is still there
            self._drop(kind, at)

        self._bulk.add((kind, at), api_client.deletion(kind, at), lambda got: {} if api_client.deleted(got) else None, done)

    def bind(self, pod: Obj, node: str, now: str) -> None:
        """Queue the assignment of a pod to a node, as schedulers do. A pod that is gone or assigned already is left alone.

        `now` is the timestamp for its PodScheduled condition.
        """
        at = ref(pod)
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        status = pod.get("status", {}) | {"conditions": [scheduled]}
        bound = pod | {"spec": pod["spec"] | {"nodeName": node}, "status": status}
        bound["metadata"] = pod["metadata"] | {"resourceVersion": ""}  # a binding returns no pod: the next LIST corrects this

        def read(answer: ServerAnswer) -> Obj | None:
            if answer.status in (404, 409):
                return self.api.get(PODS, at.name, at.namespace)
            answer.checked()
            return bound

        self._bulk.add((PODS, at), api_client.binding(at, node, now), read, lambda made: self._keep_sent(PODS, at, made))

    def flush(self) -> bool:
        """Send the queued writes and return True if there were any. The simulation calls it after each role and each instant."""
        return self._bulk.flush()

    def refresh(self, kind: ObjectKind, at: Ref) -> Obj | None:
        """Read one object of a tracked kind from the server into the cache and return it, or None if it is gone."""
        fresh = self.api.get(kind, at.name, at.namespace)
        if fresh is None:
            self._drop(kind, at)
        else:
            self._keep(kind, fresh)
        return fresh

    def close(self) -> None:
        """Stop the threads that send writes, and close all connections."""
        self._bulk.close()
        self.api.close()

    # ---- writes by other clients ---------------------------------------------------------------------------------------------

    def sync(self) -> bool:
        """Read what other clients wrote since the last call. Return True if that concerned tracked kinds other than leases.

        Without such writes it costs one small request. Leases are ignored because leaders and nodes renew them for ever.
        """
        changed = [kind for kind in self._foreign() if self._relist(kind)]
        self._writes.clear()
        return any(kind != LEASES for kind in changed)

    def _foreign(self) -> Sequence[ObjectKind]:
        """Return the tracked kinds that other clients may have written since the last call."""
        counts = self.api.change_counts()
        if counts is not None:
            known, self._counts = self._counts, {kind.resource: counts.get(kind.resource, 0) for kind in self.kinds}
            own = {name: count + self._writes[name] for name, count in known.items()}
            return [kind for kind in self.kinds if self._counts[kind.resource] != own.get(kind.resource, -1)]
        before, self._revision = self._revision, self.api.revision()
        comparable = self._revision.isdigit() and before.isdigit()
        return () if comparable and int(self._revision) - int(before) == self._writes.total() else self.kinds

    def forget(self) -> None:
        """Empty the cache, so that the next `sync` lists every tracked kind."""
        for kind in self.kinds:
            self._objects[kind].clear()
            self._dirty[kind].clear()
        self._served.clear()
        self._ensured.clear()
        self._revision = ""
        self._counts.clear()

    def touch(self, kind: ObjectKind, at: Ref) -> None:
        """Mark an object as changed, so that roles look at it again because virtual time has passed."""
        self._dirty[kind].add(at)

    def take_dirty(self) -> dict[ObjectKind, set[Ref]]:
        """Return the references of objects created, changed or removed since the last call, by kind."""
        taken = {kind: refs for kind, refs in self._dirty.items() if refs}
        self._dirty |= {kind: set() for kind in taken}
        return taken

    def _known(self, kind: ObjectKind, at: Ref) -> Obj | None:
        return self._objects.get(kind, _NONE).get(at)

    def _created(self, kind: ObjectKind, obj: Obj, answer: ServerAnswer) -> Obj:
        try:
            return self.api.created(kind, answer)
        except SimulatorApiError as error:
            at = ref(obj)
            present = self.api.get(kind, at.name, at.namespace) if error.reason == "AlreadyExists" else None
            if present is None:
                raise
            return present

    def _keep_sent(self, kind: ObjectKind, at: Ref, stored: Obj | None) -> None:
        if stored is None:
            self._drop(kind, at)
        else:
            self._keep(kind, stored)

    def _relist(self, kind: ObjectKind) -> bool:
        changed = False
        while True:
            seen: set[Ref] = set()
            try:
                for page in self.api.pages(kind) if self.served(kind) else ():
                    changed |= self._take_page(kind, page, seen)
            except ListExpired:
                continue
            except SimulatorApiError as error:
                if error.status != 404:
                    raise
                seen.clear()
            break
        for at in self._objects[kind].keys() - seen:
            self._drop(kind, at)
            changed = True
        if kind == CRDS:
            self._served = {at.name for at in self._objects[kind]}
        return changed

    def _take_page(self, kind: ObjectKind, page: Iterable[msgspec.Raw], seen: set[Ref]) -> bool:
        """Put the objects of a page of a list into the cache and into `seen`. Return True if another client changed one."""
        cached, changed = self._objects[kind], False
        for raw in page:
            meta = _HEADS.decode(raw).metadata
            at = Ref(meta.namespace, meta.name)
            seen.add(at)
            before = cached[at]["metadata"].get("resourceVersion") if at in cached else None
            if before != meta.resource_version:
                cached[at] = decode_object(raw)
                self._dirty[kind].add(at)
                changed |= before != ""  # empty: a pod that this client bound itself
        return changed

    def _keep(self, kind: ObjectKind, stored: Obj) -> None:
        at, meta = ref(stored), stored["metadata"]
        before = self._known(kind, at)
        if before is not None and before["metadata"].get("resourceVersion") == meta.get("resourceVersion"):
            return
        self._writes[kind.resource] += 1
        if "deletionTimestamp" in meta and not _held(stored):
            self._drop(kind, at)
        elif kind in self._objects:
            self._objects[kind][at] = stored
            self._dirty[kind].add(at)
            if kind == CRDS:
                self._served.add(at.name)

    def _drop(self, kind: ObjectKind, at: Ref) -> None:
        if kind in self._objects and self._objects[kind].discard(at):
            self._dirty[kind].add(at)
        if kind == CRDS:
            self._served.discard(at.name)


def _patched(answer: ServerAnswer) -> Obj | None:
    return None if answer.status == 404 else decode_object(answer.checked())


def contains(obj: Any, change: Any) -> bool:
    """Return True if applying the JSON merge patch `change` would leave `obj` unchanged."""
    if not isinstance(change, dict):
        return bool(obj == change)
    if not isinstance(obj, dict):
        return False
    return all(key not in obj if value is None else key in obj and contains(obj[key], value) for key, value in change.items())


def _version(wanted: bytes, obj: Obj) -> tuple[bytes, str, int]:
    return wanted, obj["metadata"].get("uid", ""), obj["metadata"].get("generation", 0)


def _finalizers(obj: Obj) -> bool:
    return bool(obj["metadata"].get("finalizers") or obj.get("spec", {}).get("finalizers"))


def _held(obj: Obj) -> bool:
    """Return True if an object under deletion still exists: it has finalizers, or is a pod that its kubelet has to stop first."""
    return _finalizers(obj) or bool(obj.get("spec", {}).get("nodeName"))


WRITE_WORKERS = 3
"""Number of threads that send queued writes to a real API server. More of them would only contend for the interpreter."""

SEQUENTIAL_WRITES = 2
"""Most queued writes that go to a real API server without threads. It needs 5 ms for a write."""

BATCH = 500
"""Most queued writes in one request to the emulated server. While it works on one batch, the answers of the last one are read."""

AHEAD = 2
"""Requests for each sending thread that are on their way while answers are read. Answers that wait to be read take memory."""

Read = Callable[[ServerAnswer], Obj | None]
Done = Callable[[Obj | None], None]


class _QueuedWrite(NamedTuple):
    write: Write
    read: Read
    done: Done


class WriteQueue:
    """A queue of small writes that are sent together. Writes of one lane (one object) keep their order.

    `read` turns an answer into an object, and `done` gets it, both in the thread that calls `flush`. Other threads send the next
    writes meanwhile.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._size = BATCH if api.emulated else 1
        self._few = 1 if api.emulated else SEQUENTIAL_WRITES
        # batches are sent by one thread, so that they keep their order
        workers = 1 if api.emulated else WRITE_WORKERS
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="simulator-writes")
        self._ahead = AHEAD * workers
        self._lanes: dict[Hashable, list[_QueuedWrite]] = {}

    def add(self, lane: Hashable, write: Write, read: Read, done: Done) -> None:
        """Queue a write. Writes with the same `lane` are sent one after the other."""
        self._lanes.setdefault(lane, []).append(_QueuedWrite(write, read, done))

    def flush(self) -> bool:
        """Send all writes, also those that `done` queues meanwhile; return True if anything was sent."""
        sent = False
        while self._lanes:
            lanes, self._lanes = deque(self._lanes.values()), {}
            for parcel, answers in self._answered(lanes):
                for entry, answer in zip(parcel, answers, strict=True):
                    entry.done(entry.read(answer))
            sent = True
        return sent

    def close(self) -> None:
        """Stop the worker threads after their present writes."""
        self._pool.shutdown()

    def _answered(self, lanes: deque[list[_QueuedWrite]]) -> Iterator[tuple[list[_QueuedWrite], list[ServerAnswer]]]:
        """Take the lanes in parcels, and yield each with its answers in order, while further ones are sent."""
        if len(lanes) <= self._few * self._size:
            while lanes:
                parcel = self._parcel(lanes)
                yield parcel, self._send(parcel)
            return
        sending: deque[tuple[list[_QueuedWrite], Future[list[ServerAnswer]]]] = deque()
        try:
            while lanes or sending:
                while lanes and len(sending) <= self._ahead:
                    parcel = self._parcel(lanes)
                    sending.append((parcel, self._pool.submit(self._send, parcel)))
                parcel, answers = sending.popleft()
                yield parcel, answers.result()
        finally:
            for _, answers in sending:
                answers.cancel()

    def _parcel(self, lanes: deque[list[_QueuedWrite]]) -> list[_QueuedWrite]:
        return [entry for _ in range(min(self._size, len(lanes))) for entry in lanes.popleft()]

    def _send(self, parcel: list[_QueuedWrite]) -> list[ServerAnswer]:
        return self._api.write_all([entry.write for entry in parcel])
