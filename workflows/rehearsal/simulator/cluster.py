"""The simulator's view of the API: tracked kinds are kept in memory, written through, and read again when somebody else wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from workflows.rehearsal.simulator.api import Api, ApiError, Head, decode
from workflows.rehearsal.simulator.bulk import FEW, FEW_REAL, Bulk
from workflows.rehearsal.simulator.kinds import CRDS, LEASES, PODS, Kind, Obj, Ref, ref

_HEADS = msgspec.json.Decoder(Head)
_NONE: dict[Ref, Obj] = {}


class Cluster:
    """Reads come from memory, writes go to the server and then into memory. Objects handed out must not be changed in place.

    `sync` asks the server for its newest resourceVersion. If it is further on than this client's own writes explain, somebody
    else wrote, and the tracked kinds are listed again. Counting revisions is an optimization only: any doubt leads to the lists.
    """

    def __init__(self, api: Api, kinds: Iterable[Kind]) -> None:
        self.api = api
        self.kinds = tuple(dict.fromkeys((CRDS, *kinds)))
        self._objects: dict[Kind, dict[Ref, Obj]] = {kind: {} for kind in self.kinds}
        self._dirty: dict[Kind, set[Ref]] = {kind: set() for kind in self.kinds}
        self._served: set[str] = set()
        self._revision = ""
        self._writes = 0
        self._bulk = Bulk(FEW if api.emulated else FEW_REAL)
        self._ensured: dict[tuple[Kind, Ref], tuple[bytes, str, int]] = {}

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def objects(self, kind: Kind) -> Collection[Obj]:
        """All objects of a tracked kind. Writes while iterating are allowed."""
        return tuple(self._objects[kind].values())

    def find(self, kind: Kind, name: str, namespace: str = "") -> Obj | None:
        """One object of a tracked kind."""
        return self._objects[kind].get(Ref(namespace, name))

    def read(self, kind: Kind, name: str, namespace: str = "") -> Obj | None:
        """One object of any kind: from memory when tracked, else from the server."""
        return self.find(kind, name, namespace) if kind in self._objects else self.api.get(kind, name, namespace)

    def select(self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None) -> Iterator[Obj]:
        """Objects of a tracked kind in a namespace (empty: any) that carry all these labels."""
        wanted = (labels or {}).items()
        for obj in self.objects(kind):
            meta = obj["metadata"]
            if (not namespace or meta.get("namespace") == namespace) and wanted <= meta.get("labels", {}).items():
                yield obj

    def served(self, kind: Kind) -> bool:
        """Whether the API has this kind now: built in, or its CustomResourceDefinition exists."""
        return "." not in kind.group or kind.group.endswith(".k8s.io") or f"{kind.plural}.{kind.group}" in self._served

    # ---- writing -------------------------------------------------------------------------------------------------------------

    def create(self, kind: Kind, obj: Obj) -> Obj:
        """Create an object, or hand back the one that has its name already."""
        known = self._known(kind, _place(obj))
        if known is not None:
            return known
        made = self._send_create(kind, obj)
        self._keep(kind, made)
        return made

    def create_soon(self, kind: Kind, obj: Obj) -> None:
        """Like `create`, together with this instant's other writes; it shows in memory after them."""
        at = _place(obj)
        if self._known(kind, at) is None:
            self._bulk.add((kind, at), lambda: self._send_create(kind, obj), lambda made: self._keep_sent(kind, at, made))

    def patch(self, kind: Kind, obj: Obj | Ref, change: Obj, *, status: bool = False) -> Obj | None:
        """JSON merge patch; no request when it would change nothing. None when the object is gone."""
        at = obj if isinstance(obj, Ref) else ref(obj)
        known = self._known(kind, at)
        if known is not None and contains(known, change):
            return known
        made = self._send_patch(kind, at, change, status)
        self._keep_sent(kind, at, made)
        return made

    def patch_soon(self, kind: Kind, obj: Obj | Ref, change: Obj, *, status: bool = False) -> None:
        """Like `patch`, together with this instant's other writes; it shows in memory after them."""
        at = obj if isinstance(obj, Ref) else ref(obj)
        known = self._known(kind, at)
        if known is None or not contains(known, change):
            self._bulk.add((kind, at), lambda: self._send_patch(kind, at, change, status), lambda it: self._keep_sent(kind, at, it))

    def ensure(self, kind: Kind, obj: Obj) -> Obj:
        """Create the object or patch it until it contains `obj`; a `status` in it is written to the status sub-resource.

        Lists come back with defaults filled in and never compare equal: what was ensured stays so until the generation moves.
        """
        main = {key: value for key, value in obj.items() if key != "status"}
        made = self.create(kind, main)
        wanted = msgspec.json.encode(main)
        if self._ensured.get((kind, ref(made))) != _version(wanted, made) or not contains(made["metadata"], main["metadata"]):
            made = self.patch(kind, made, main) or made
            if "generation" in made["metadata"]:
                self._ensured[kind, ref(made)] = _version(wanted, made)
        return self.patch(kind, made, {"status": obj["status"]}, status=True) or made if "status" in obj else made

    def delete(self, kind: Kind, obj: Obj | Ref) -> None:
        """Delete at once; an object with finalizers stays until they are gone. Gone already is fine."""
        at = obj if isinstance(obj, Ref) else ref(obj)
        self._writes += self.api.delete(kind, at)
        if kind not in self._objects:
            return
        known = self._objects[kind].get(at)
        left = self.api.get(kind, at.name, at.namespace) if known and _finalizers(known) else None
        if left is None:
            self._drop(kind, at)
        else:
            self._objects[kind][at] = left
            self._dirty[kind].add(at)

    def delete_soon(self, kind: Kind, obj: Obj | Ref) -> None:
        """Like `delete`, together with this instant's other writes. For objects without finalizers."""
        at = obj if isinstance(obj, Ref) else ref(obj)

        def send() -> Obj | None:
            return {} if self.api.delete(kind, at) else None

        def done(made: Obj | None) -> None:
            self._writes += made is not None
            self._drop(kind, at)

        self._bulk.add((kind, at), send, done)

    def bind(self, pod: Obj, node: str, now: str) -> None:
        """Bind a pod, together with this instant's other writes. One that is gone, or bound by somebody else, is left alone."""
        at = ref(pod)
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        status = pod.get("status", {}) | {"conditions": [scheduled]}
        bound = pod | {"spec": pod["spec"] | {"nodeName": node}, "status": status}
        bound["metadata"] = pod["metadata"] | {"resourceVersion": ""}  # not told by the server: the next LIST corrects it

        def send() -> Obj | None:
            try:
                self.api.bind(at, node)
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
                return self.api.get(PODS, at.name, at.namespace)
            return bound

        self._bulk.add((PODS, at), send, lambda made: self._keep_sent(PODS, at, made))

    def flush(self) -> bool:
        """Send the queued writes; the engine does so after each role and each instant. True when there were any."""
        return self._bulk.flush()

    def refresh(self, kind: Kind, at: Ref) -> Obj | None:
        """Read one object of a tracked kind again from the server."""
        found = self.api.get(kind, at.name, at.namespace)
        if found is None:
            self._drop(kind, at)
        else:
            self._keep(kind, found)
        return found

    def close(self) -> None:
        """End worker threads and connections."""
        self._bulk.close()
        self.api.close()

    # ---- keeping up ----------------------------------------------------------------------------------------------------------

    def sync(self) -> bool:
        """Learn what others wrote since the last call; a single small request when nobody did.

        Whether they changed what is tracked, leases aside: leaders and nodes renew those for ever, and nothing follows from it.
        """
        others = not self._own_writes_explain(revision := self.api.revision())
        changed = [kind for kind in self.kinds if others and self._relist(kind)]
        self._revision, self._writes = revision, 0
        return any(kind != LEASES for kind in changed)

    def forget(self) -> None:
        """Drop what is in memory, so that the next `sync` reads everything."""
        for kind in self.kinds:
            self._objects[kind].clear()
            self._dirty[kind].clear()
        self._served.clear()
        self._ensured.clear()
        self._revision = ""

    def touch(self, kind: Kind, at: Ref) -> None:
        """Have the roles look at an object again although it did not change, because time did."""
        self._dirty[kind].add(at)

    def take_dirty(self) -> dict[Kind, set[Ref]]:
        """What was created, changed or removed since the last call, by kind; empty when nothing was."""
        taken = {kind: refs for kind, refs in self._dirty.items() if refs}
        self._dirty |= {kind: set() for kind in taken}
        return taken

    def _known(self, kind: Kind, at: Ref) -> Obj | None:
        return self._objects.get(kind, _NONE).get(at)

    def _send_create(self, kind: Kind, obj: Obj) -> Obj:
        try:
            return self.api.create(kind, obj)
        except ApiError as error:
            at = _place(obj)
            present = self.api.get(kind, at.name, at.namespace) if error.reason == "AlreadyExists" else None
            if present is None:
                raise
            return present

    def _send_patch(self, kind: Kind, at: Ref, change: Obj, status: bool) -> Obj | None:
        try:
            return self.api.merge(kind, at, change, "status" if status else "")
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def _keep_sent(self, kind: Kind, at: Ref, made: Obj | None) -> None:
        if made is None:
            self._drop(kind, at)
        else:
            self._keep(kind, made)

    def _own_writes_explain(self, revision: str) -> bool:
        known = revision.isdigit() and self._revision.isdigit()
        return known and int(revision) - int(self._revision) == self._writes

    def _relist(self, kind: Kind) -> bool:
        known, changed = self._objects[kind], False
        raws = (self.api.list(kind) if self.served(kind) else None) or ()
        seen: set[Ref] = set()
        for raw in raws:
            meta = _HEADS.decode(raw).metadata
            at = Ref(meta.namespace, meta.name)
            seen.add(at)
            before = known[at]["metadata"].get("resourceVersion") if at in known else None
            if before != meta.resource_version:
                known[at] = decode(raw)
                self._dirty[kind].add(at)
                changed |= before != ""  # that is a pod which we bound
        for at in known.keys() - seen:
            self._drop(kind, at)
            changed = True
        if kind == CRDS:
            self._served = {at.name for at in known}
        return changed

    def _keep(self, kind: Kind, made: Obj) -> None:
        at, meta = ref(made), made["metadata"]
        before = self._known(kind, at)
        if before is not None and before["metadata"].get("resourceVersion") == meta.get("resourceVersion"):
            return
        self._writes += 1
        if "deletionTimestamp" in meta and not _held(made):
            self._drop(kind, at)
        elif kind in self._objects:
            self._objects[kind][at] = made
            self._dirty[kind].add(at)
            if kind == CRDS:
                self._served.add(at.name)

    def _drop(self, kind: Kind, at: Ref) -> None:
        if self._objects.get(kind, _NONE).pop(at, None) is not None:
            self._dirty[kind].add(at)
        if kind == CRDS:
            self._served.discard(at.name)


def contains(obj: Any, change: Any) -> bool:
    """Whether a JSON merge patch would leave `obj` as it is."""
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
    """Whether an object that is being deleted stays: for its finalizers, or as a pod that its kubelet still has to end."""
    return _finalizers(obj) or bool(obj.get("spec", {}).get("nodeName"))


def _place(obj: Obj) -> Ref:
    return Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
